use crate::files::{self, read_text};
use crate::{TensorFile, write};
use half::{bf16, f16};
use hearken_base::Kind;
use hearken_tensor::Tensor;
use hearken_tensor::rng::Rng;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

/// A file with this header and data.
fn raw(header: &str, data: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempdir().unwrap();
    let path = directory.path().join("t.safetensors");
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat();
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

#[test]
fn what_is_written_is_read_to_the_bit() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("t.safetensors");
    let (a, b) = (Rng::new(1).normal([3, 50_000], 1.0), Tensor::new([2], &[f32::NAN, -0.0]));
    let (scalar, empty) = (Tensor::scalar(7.0), Tensor::zeros([0, 4]));
    write(&path, [("a", &a), ("b", &b), ("scalar", &scalar), ("empty", &empty)]).unwrap();
    let file = TensorFile::open(&path).unwrap();
    assert_eq!(file.entries().len(), 4);
    for (name, want) in [("b", &b), ("scalar", &scalar), ("a", &a), ("empty", &empty)] {
        let got = file.tensor(name).unwrap();
        assert_eq!(got.shape(), want.shape());
        assert_eq!(bits(got.data()), bits(want.data()));
    }
    let mut part = [0.0; 5];
    file.read_range("a", 49_998, &mut part).unwrap();
    assert_eq!(part, a.data()[49_998..50_003]);
    let error = file.tensor("scalr").unwrap_err();
    assert_eq!(error.hint(), Some("did you mean scalar?"));
}

#[test]
fn sixteen_bit_numbers_are_widened_and_other_types_are_listed() {
    let header = r#"{"h":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},
        "b":{"dtype":"BF16","shape":[2],"data_offsets":[2,6]},
        "i":{"dtype":"I64","shape":[1],"data_offsets":[6,14]},
        "new":{"dtype":"F2","shape":[9],"data_offsets":[14,16]},
        "deep":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[16,17]}}"#;
    let numbers = [
        f16::from_f32(1.5).to_bits(),
        bf16::from_f32(9.0).to_bits(),
        bf16::from_f32(-3.0).to_bits(),
    ];
    let mut data: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    data.extend([0; 11]);
    let (_directory, path) = raw(header, &data);
    let file = TensorFile::open(&path).unwrap();
    assert_eq!(file.tensor("h").unwrap().item(), 1.5);
    let mut last = [0.0];
    file.read_range("b", 1, &mut last).unwrap();
    assert_eq!(last, [-3.0]);
    for name in ["i", "new"] {
        let error = file.tensor(name).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("expected F32, F16 or BF16"), "{error}");
    }
    assert!(file.tensor("deep").is_err());
    assert_eq!(file.shape("i").unwrap(), [1]);
}

#[test]
fn damaged_files_are_errors_and_never_large_allocations() {
    let one = |entry: &str| format!("{{\"a\":{entry}}}");
    let two = |a: &str, b: &str| {
        let entry = |at: &str| format!(r#"{{"dtype":"F32","shape":[1],"data_offsets":[{at}]}}"#);
        format!(r#"{{"a":{},"b":{}}}"#, entry(a), entry(b))
    };
    for (header, message) in [
        ("not json".to_owned(), "not JSON"),
        ("[]".to_owned(), "not a table of tensors"),
        (one("3"), "a: invalid type: integer `3`"),
        (one(r#"{"dtype":"F32","shape":[2]}"#), "a: missing field `data_offsets`"),
        (one(r#"{"dtype":"F32","shape":[2],"data_offsets":[0]}"#), "a: invalid length 1"),
        (one(r#"{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}"#), "a: invalid value"),
        (one(r#"{"dtype":"F32","shape":[9999999999999],"data_offsets":[0,8]}"#), "does not lie"),
        (one(r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}"#), "large"),
        (one(r#"{"dtype":"F32","shape":[2],"data_offsets":[0,800]}"#), "does not lie"),
        (one(r#"{"dtype":"F32","shape":[2],"data_offsets":[8,0]}"#), "does not lie"),
        (one(r#"{"dtype":"new","shape":[2],"data_offsets":[0,800]}"#), "does not lie"),
        (one(r#"{"dtype":"new","shape":[8,4294967296],"data_offsets":[0,8]}"#), "does not lie"),
        (one(r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#), "4 bytes at the end"),
        (one(r#"{"dtype":"F32","shape":[1],"data_offsets":[4,8]}"#), "4 bytes before a"),
        (two("0,4", "0,4"), "b overlaps"),
        (two("0,4", "4,8").replace("\"b\"", "\"a\""), "a is there twice"),
        (
            one(&format!(r#"{{"dtype":"F32","shape":{:?},"data_offsets":[0,8]}}"#, [1; 65])),
            "a: more than 64 dimensions",
        ),
        ("{}".to_owned(), "8 bytes at the end"),
    ] {
        let (_directory, path) = raw(&header, &[0; 8]);
        let error = TensorFile::open(&path).unwrap_err();
        assert_eq!(error.kind(), Kind::Damaged, "{error}");
        let text = error.to_string();
        assert!(text.contains(message) && text.contains("t.safetensors"), "{header}: {text}");
        assert!(error.hint().is_some(), "{error}");
    }
    let (_directory, path) = raw("{}", &[]);
    assert!(TensorFile::open(&path).unwrap().entries().is_empty());
    for bytes in [&b""[..], b"short", &u64::MAX.to_le_bytes()] {
        std::fs::write(&path, bytes).unwrap();
        assert!(TensorFile::open(&path).is_err());
    }
    let missing = TensorFile::open(Path::new("no-such-file")).unwrap_err().to_string();
    assert!(missing.contains("no-such-file"), "{missing}");
}

#[test]
fn only_regular_files_of_bounded_size_are_read() {
    let directory = tempdir().unwrap();
    for path in [directory.path(), Path::new("/dev/zero")] {
        if path.exists() {
            let error = TensorFile::open(path).unwrap_err().to_string();
            assert!(error.contains("is not a regular file"), "{error}");
            assert!(read_text(path, 10).is_err());
        }
    }
    let path = directory.path().join("text");
    std::fs::write(&path, "0123456789").unwrap();
    assert_eq!(read_text(&path, 10).unwrap(), "0123456789");
    let error = read_text(&path, 9).unwrap_err().to_string();
    assert!(error.contains("10 bytes, expected at most 9"), "{error}");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(read_text(&path, 10).unwrap_err().to_string().contains("not UTF-8"));
}

#[test]
fn only_leftovers_of_processes_that_are_gone_are_swept() {
    // Larger than any id that Linux gives.
    const GONE: u32 = 1 << 30;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let name = |id: u32| format!("ids.{id}.tmp");
    let own = name(std::process::id());
    let others = ["ids", "ids.tmp", "ids.x.tmp", "ids..tmp", "ids.+7.tmp", "other.1073741824.tmp"];
    for name in others.iter().copied().chain([own.as_str(), &name(GONE), &name(GONE + 1)]) {
        fs::write(path(name), "x").unwrap();
    }
    let locked = fs::File::open(path(&name(GONE + 1))).unwrap();
    locked.lock().unwrap();
    fs::create_dir(path(&name(GONE + 2))).unwrap();
    let owner = |name: &str| files::owner_in(name, "ids.", ".tmp");
    assert_eq!(files::sweep_leftovers(folder.path(), owner), 1);
    assert!(!path(&name(GONE)).exists());
    for name in others.iter().copied().chain([own.as_str(), &name(GONE + 1), &name(GONE + 2)]) {
        assert!(path(name).exists(), "{name}");
    }
    drop(locked);
    assert_eq!(files::sweep_leftovers(folder.path(), owner), 1);
    assert_eq!(files::sweep_leftovers(&path("nowhere"), owner), 0);
}
