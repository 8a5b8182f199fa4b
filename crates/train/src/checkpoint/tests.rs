use super::*;
use tempfile::TempDir;

fn state(step: u64) -> State {
    State {
        format: FORMAT,
        step,
        seed: u64::MAX, // more than a double holds
        optimizer: "adamw".to_owned(),
        counters: Counters { steps: step, beta1_product: 0.1 + 0.2, beta2_product: 1e-300 },
        loss_scale: Some((65_536.0, 3)),
        evaluations: Evaluations::default(),
        ema_updates: None,
        skipped: 0,
        tokens: 1 << 60,
        elapsed_seconds: 1.0 / 3.0,
        weights: String::new(),
    }
}

fn save(checkpoints: &Checkpoints, step: u64) -> PathBuf {
    let tensors = [("first.a".to_owned(), Tensor::full([3], step as f32))];
    let model = |dir: &Path| {
        fs::write(dir.join("config.json"), format!("{{\"step\": {step}}}"))
            .map_err(error::io("write", dir))
    };
    checkpoints.save(&state(step), &tensors, model).unwrap()
}

fn fresh() -> (TempDir, Checkpoints) {
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(dir.path()).unwrap();
    (dir, checkpoints)
}

#[test]
fn a_state_comes_back_with_its_bits() {
    let (dir, checkpoints) = fresh();
    let path = save(&checkpoints, 500);
    assert_eq!(path, dir.path().join("step-000500"));
    let (loaded, damaged) = checkpoints.newest().unwrap();
    let loaded = loaded.unwrap();
    assert!(damaged.is_empty());
    assert_eq!(loaded.state, state(500));
    let tensor = files::tensor(&loaded.tensors, "first.a", [3].into()).unwrap();
    assert_eq!(tensor.data(), [500.0; 3]);
    assert_eq!(files::pointed(&dir.path().join("last")).as_deref(), Some("step-000500"));
}

#[test]
fn nothing_saved_is_not_an_error() {
    let (_dir, checkpoints) = fresh();
    assert!(checkpoints.newest().unwrap().0.is_none());
}

/// Every way to damage each file of a checkpoint makes it unreadable, by name, and the one
/// before it is used.
#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_it_is_used() {
    for file in ["config.json", TENSORS, STATE, SUMS] {
        for damage in ["truncated", "flipped", "removed", "emptied"] {
            let (dir, checkpoints) = fresh();
            save(&checkpoints, 1);
            let path = save(&checkpoints, 2).join(file);
            let mut bytes = fs::read(&path).unwrap();
            match damage {
                "truncated" => bytes.truncate(bytes.len() / 2),
                "flipped" => {
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1;
                }
                _ => bytes.clear(),
            }
            if damage == "removed" {
                fs::remove_file(&path).unwrap();
            } else {
                fs::write(&path, bytes).unwrap();
            }
            let (loaded, damaged) = checkpoints.newest().unwrap();
            assert_eq!(loaded.unwrap().state.step, 1, "{file} {damage}");
            let text = damaged[0].to_string();
            assert!(text.contains("step-000002") && text.contains("damaged"), "{text}");
            assert_eq!(checkpoints.steps().unwrap(), [1]);
            assert!(dir.path().join("damaged-step-000002").exists());
            assert_eq!(files::pointed(&dir.path().join("last")).as_deref(), Some("step-000001"));
        }
    }
}

#[test]
fn when_none_is_whole_all_are_named() {
    let (_dir, checkpoints) = fresh();
    for step in [1, 2] {
        fs::write(save(&checkpoints, step).join(STATE), "{}").unwrap();
    }
    let Err(error) = checkpoints.newest() else { panic!("a damaged checkpoint was used") };
    let text = error.to_string();
    assert!(text.contains("step-000001") && text.contains("step-000002"), "{text}");
}

#[test]
fn what_a_crash_left_unfinished_is_removed_and_not_read() {
    let (dir, checkpoints) = fresh();
    save(&checkpoints, 1);
    let unfinished = dir.path().join(format!("{UNFINISHED}step-000002-123"));
    fs::create_dir(&unfinished).unwrap();
    fs::write(unfinished.join("config.json"), "{").unwrap();
    let checkpoints = Checkpoints::open(dir.path()).unwrap();
    assert!(!unfinished.exists());
    assert_eq!(checkpoints.newest().unwrap().0.unwrap().state.step, 1);
}

#[test]
fn an_error_while_saving_leaves_what_was_there() {
    let (dir, checkpoints) = fresh();
    save(&checkpoints, 1);
    let full = |dir: &Path| {
        fs::write(dir.join("config.json"), "half").unwrap();
        Err(error::io("write", dir)(std::io::ErrorKind::StorageFull.into()))
    };
    let text = checkpoints.save(&state(2), &[], full).unwrap_err().to_string();
    assert!(text.contains("cannot save") && text.contains("step-000002"), "{text}");
    assert!(text.contains("step-000001 is whole"), "{text}");
    assert!(text.contains("hint: free some space"), "{text}");
    assert_eq!(checkpoints.newest().unwrap().0.unwrap().state.step, 1);
    let names = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 2, "step-000001 and last");
}

#[test]
fn the_newest_and_the_best_are_kept() {
    let (_dir, checkpoints) = fresh();
    for step in 1..=5 {
        save(&checkpoints, step);
        if step == 2 {
            checkpoints.set_best(step).unwrap();
        }
        checkpoints.prune(2).unwrap();
    }
    assert_eq!(checkpoints.steps().unwrap(), [2, 4, 5]);
    assert_eq!(checkpoints.best(), Some(2));
}

#[test]
fn a_step_done_again_replaces_its_checkpoint() {
    let (_dir, checkpoints) = fresh();
    let path = save(&checkpoints, 1);
    fs::write(path.join("extra"), "from before").unwrap();
    save(&checkpoints, 1);
    assert!(!path.join("extra").exists());
    verify(&path).unwrap();
}

#[test]
fn checksums_cannot_name_files_outside() {
    let (_dir, checkpoints) = fresh();
    let path = save(&checkpoints, 1);
    let sums = fs::read_to_string(path.join(SUMS)).unwrap();
    fs::write(path.join(SUMS), sums.replace("config.json", "../../passwd")).unwrap();
    let text = verify(&path).unwrap_err().to_string();
    assert!(text.contains("outside"), "{text}");
}
