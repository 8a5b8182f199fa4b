//! Several clients of one engine: each gets what it would get alone.

use hearken_infer::beam::BeamSearch;
use hearken_infer::client::{Client, Event};
use hearken_infer::engine::with_engine;
use hearken_infer::generate::{
    Finish, Flow, Request, beam_search, generate, generate_several, left_out,
};
use hearken_infer::sampler::Sampling;
use hearken_kernels::isa::{Isa, with_isa};
use hearken_nn::cache::CacheKind;
use hearken_nn::models::{Decoder, Generates, Model};
use hearken_nn::variants;
use hearken_tensor::Tensor;
use std::thread;

/// Prompts of different lengths, some longer than the context of 24, and a different way for each.
fn requests() -> Vec<Request> {
    let lengths = [1, 30, 3, 9, 23, 8, 16, 2];
    let caches = [Some(CacheKind::F32), Some(CacheKind::F16), Some(CacheKind::Int8), None];
    let request = |(i, length): (usize, u32)| Request {
        sampling: Sampling { temperature: i as f32 / 4.0, seed: i as u64, ..Sampling::default() },
        ends: if i == 5 { vec![4] } else { vec![] },
        cache: caches[if i == 6 { 3 } else { i % 3 }],
        ..Request::new((0..length).map(|t| (t * 7 + i as u32) % 13).collect(), 20 + 5 * i)
    };
    lengths.into_iter().enumerate().map(request).collect()
}

fn read(client: &Client, request: &Request) -> (Vec<(u32, f32)>, Finish) {
    let mut new = Vec::new();
    for event in client.write(request, 1).unwrap() {
        match event.unwrap() {
            Event::Token { step, .. } => new.push((step.id, step.probability)),
            Event::End { finish, .. } => return (new, finish),
        }
    }
    panic!("a text without an end: {new:?}");
}

#[test]
fn eight_texts_together_are_to_the_bit_those_written_alone() {
    for isa in Isa::all_available().filter(|isa| *isa != Isa::Amx) {
        for (name, config) in variants::all().into_iter().step_by(5) {
            let model = Decoder::drawn(config, 5);
            let requests = requests();
            let together = |most_sequences| {
                with_engine(&model, most_sequences, |client| {
                    thread::scope(|scope| {
                        let reading = |request| scope.spawn(move || read(client, request));
                        let readers: Vec<_> = requests.iter().map(reading).collect();
                        readers.into_iter().map(|r| r.join().unwrap()).collect::<Vec<_>>()
                    })
                })
            };
            with_isa(isa, || {
                let alone: Vec<_> = requests
                    .iter()
                    .map(|request| with_engine(&model, 1, |client| read(client, request)))
                    .collect();
                assert_eq!(together(8), alone, "{isa:?}, {name}");
                assert_eq!(together(3), alone, "{isa:?}, {name}, three at a time");
            });
        }
    }
}

#[test]
fn several_samples_are_those_of_their_seeds() {
    let model = Decoder::drawn(variants::base(), 5);
    let mut request = requests().remove(2);
    request.sampling = Sampling { seed: 40, ..Sampling::default() };
    request.ends = vec![7];
    let mut heard = vec![Vec::new(); 5];
    let all = generate_several(&model, &request, 5, |text, step| {
        heard[text].push(step.id);
        Flow::Continue
    });
    let all = all.unwrap();
    for (i, (text, heard)) in all.iter().zip(heard).enumerate() {
        let mut alone = request.clone();
        alone.sampling.seed = 40 + i as u64;
        assert_eq!(*text, generate(&model, &alone, |_| Flow::Continue).unwrap());
        assert_eq!(text.0, heard);
    }
    assert!(all.iter().any(|(_, finish)| *finish == Finish::End), "{all:?}");
    assert_ne!(all[0].0, all[1].0);
    let some =
        generate_several(
            &model,
            &request,
            5,
            |text, _| {
                if text == 1 { Flow::Stop } else { Flow::Continue }
            },
        );
    for (i, (text, all)) in some.unwrap().into_iter().zip(all).enumerate() {
        assert_eq!(text, if i == 1 { (vec![all.0[0]], Finish::Stopped) } else { all });
    }
}

#[test]
fn a_search_beside_others_finds_what_it_finds_alone() {
    let model = Decoder::drawn(variants::base(), 5);
    let search = BeamSearch { ends: vec![2], ..BeamSearch::new(4, 15) };
    for kind in [CacheKind::F32, CacheKind::F16, CacheKind::Int8] {
        let alone = beam_search(&model, &[1, 2, 3], &search, kind).unwrap();
        assert_eq!(alone.len(), 4);
        with_engine(&model, 6, |client| {
            thread::scope(|scope| {
                let requests = requests();
                let others = [0, 4].map(|i: usize| {
                    let request = requests[i].clone();
                    scope.spawn(move || read(client, &request))
                });
                assert_eq!(client.search(&[1, 2, 3], &search, kind).unwrap(), alone);
                for other in others {
                    other.join().unwrap();
                }
            });
        });
    }
}

#[test]
fn a_client_who_leaves_or_sleeps_does_not_hold_up_others() {
    let model = Decoder::drawn(variants::base(), 5);
    let mut endless = requests().remove(0);
    endless.most_tokens = usize::MAX;
    with_engine(&model, 2, |client| {
        let mut asleep = client.write(&endless, 1).unwrap(); // two tokens, then it waits
        let mut gone = client.write(&endless, 1).unwrap();
        assert!(matches!(gone.next(), Some(Ok(Event::Token { .. }))));
        drop(gone);
        let (new, finish) = read(client, &requests()[3]); // there is room for it
        assert_eq!((new.len(), finish), (35, Finish::Length));
        assert!(matches!(asleep.next(), Some(Ok(Event::Token { .. }))));
    });
}

#[test]
fn nothing_is_asked_of_a_model_that_is_to_write_nothing() {
    let model = Decoder::drawn(variants::base(), 5);
    let mut request = requests().remove(0);
    request.most_tokens = 0;
    let nothing = generate(&model, &request, |_| Flow::Continue).unwrap();
    assert_eq!(nothing, (vec![], Finish::Length));
    let search = BeamSearch::new(2, 0);
    assert_eq!(beam_search(&model, &[1], &search, CacheKind::F32).unwrap(), []);
}

#[test]
fn weights_that_give_nan_are_an_error() {
    let model = Decoder::drawn(variants::base(), 5);
    let norm = model.parameters().iter().find(|p| p.name() == "norm.weight").unwrap();
    norm.set_value(Tensor::full(norm.shape(), f32::NAN));
    for mut request in requests() {
        request.cache = if request.prompt.len() % 2 == 0 { None } else { request.cache };
        let error = generate(&model, &request, |_| Flow::Continue).unwrap_err();
        assert!(error.to_string().contains("weights give NaN"), "{error}");
    }
    let search = BeamSearch::new(2, 5);
    let error = beam_search(&model, &[1], &search, CacheKind::F32).unwrap_err();
    assert!(error.to_string().contains("hint: "), "{error}");
}

#[test]
fn what_a_long_prompt_loses_is_known() {
    let model = Decoder::drawn(variants::base(), 5);
    assert_eq!(left_out(&model, &[1; 24]), 0);
    assert_eq!(left_out(&model, &[1; 30]), 6);
    assert_eq!(model.context(), 24);
}
