use super::*;

fn facts(pairs: &[(&str, &str)]) -> Facts {
    pairs
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect()
}

fn boot(image: &str, pairs: &[(&str, &str)]) -> Earlier {
    Earlier {
        image_id: image.into(),
        facts: facts(pairs),
    }
}

#[test]
fn a_difference_counts_against_a_boot_where_no_kernel_chose_it() {
    let earlier = [boot(
        "a",
        &[
            ("cpu", "Xeon"),
            ("governor", "performance"),
            ("thp", "madvise"),
            ("loadavg", "0.1"),
            ("memory", "MemTotal: 8000000 kB"),
        ],
    )];
    let judge = |image: &str, pairs: &[(&str, &str)]| refusal(image, &facts(pairs), &earlier, true);
    // (image, facts, whether it is refused)
    type Judged = (&'static str, &'static [(&'static str, &'static str)], bool);
    let cases: [Judged; 8] = [
        ("a", &[("governor", "performance"), ("loadavg", "3.0")], false),
        ("a", &[("governor", "powersave")], true),
        ("b", &[("governor", "powersave")], false),
        ("b", &[("thp", "always")], false),
        ("b", &[("cpu", "Epyc")], true),
        ("b", &[("memory", "MemTotal: 7999000 kB")], false),
        ("b", &[("memory", "MemTotal: 4000000 kB")], true),
        ("a", &[("a_fact_of_a_newer_agent", "1")], false),
    ];
    for (image, pairs, refused) in cases {
        let said = judge(image, pairs);
        assert_eq!(said.is_some(), refused, "{image} {pairs:?}: {said:?}");
    }
    let said = judge("a", &[("governor", "powersave")]).unwrap();
    assert_eq!(
        said,
        "governor was `performance` in an earlier boot of this kernel here and is `powersave` now: set it back, or hold \
         it in the machine's file"
    );
    // Programs choose no governor.
    assert!(refusal("b", &facts(&[("governor", "powersave")]), &earlier, false).is_some());
}

#[test]
fn a_host_matters_to_a_guest_unless_its_clock_counts_instructions() {
    let was = |accel: &str| {
        [boot(
            "a",
            &[
                ("accel", accel),
                ("host.governor", "performance"),
                ("host.swappiness", "60"),
            ],
        )]
    };
    let is = |accel: &str, name: &str, value: &str| facts(&[("accel", accel), (name, value)]);
    assert!(refusal("b", &is("kvm", "host.governor", "powersave"), &was("kvm"), true).is_some());
    assert!(
        refusal(
            "b",
            &is("tcg icount", "host.governor", "powersave"),
            &was("tcg icount"),
            true
        )
        .is_none()
    );
    assert!(refusal("b", &is("kvm", "host.swappiness", "10"), &was("kvm"), true).is_none());
    assert!(refusal("b", &is("tcg", "host.governor", "performance"), &was("kvm"), true).is_some());
}

#[test]
fn differences_are_counted_by_value() {
    let boots = [
        facts(&[("thp", "always"), ("cpu", "Xeon"), ("loadavg", "1")]),
        facts(&[("thp", "madvise"), ("cpu", "Xeon"), ("loadavg", "2")]),
        facts(&[("thp", "madvise"), ("cpu", "Xeon")]),
    ];
    let found = differences(boots.iter());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].fact, "thp");
    assert_eq!(
        found[0].values,
        BTreeMap::from([("always".into(), 1), ("madvise".into(), 2)])
    );
}

#[test]
fn each_disturbance_has_its_words_and_its_limit() {
    let calm = Disturbance {
        wall_s: 10.0,
        cpus: 2,
        steal_s: Some(0.9),
        throttled: Some(0),
        logins: vec![],
        foreign_io_mib: Some(7.0),
        clock_step_s: 0.005,
    };
    let limits = Disturbed {
        logins: true,
        ..Disturbed::default()
    };
    assert_eq!(disturbed(&limits, &calm, false), None);
    assert_eq!(disturbed(&limits, &Disturbance::default(), false), None);
    let cases: [(Disturbance, &str, bool); 5] = [
        (
            Disturbance {
                steal_s: Some(3.0),
                ..calm.clone()
            },
            "took 15 % of the CPUs' time",
            true,
        ),
        (
            Disturbance {
                throttled: Some(4),
                ..calm.clone()
            },
            "slowed down 4 times",
            true,
        ),
        (
            Disturbance {
                logins: vec!["ann pts/0".into()],
                ..calm.clone()
            },
            "logged in: ann pts/0",
            true,
        ),
        (
            Disturbance {
                foreign_io_mib: Some(400.0),
                ..calm.clone()
            },
            "other disks moved 400 MiB",
            false,
        ),
        (
            Disturbance {
                clock_step_s: -2.0,
                ..calm.clone()
            },
            "set by -2.000 s",
            false,
        ),
    ];
    for (seen, words, also_of_a_host) in cases {
        let said = disturbed(&limits, &seen, false).unwrap();
        assert!(said.contains(words), "{said}");
        assert_eq!(
            disturbed(&limits, &seen, true).is_some(),
            also_of_a_host,
            "{words}"
        );
    }
    // One tick in a run of milliseconds is no neighbour.
    let short = Disturbance {
        wall_s: 0.02,
        steal_s: Some(0.01),
        ..calm.clone()
    };
    assert_eq!(disturbed(&limits, &short, false), None);
    let patient = Disturbed {
        logins: false,
        throttling: false,
        steal_pct: 100.0,
        ..limits
    };
    let all = Disturbance {
        steal_s: Some(3.0),
        throttled: Some(4),
        logins: vec!["ann".into()],
        ..calm
    };
    assert_eq!(disturbed(&patient, &all, false), None);
}

#[test]
fn a_kernel_that_is_dropped_more_often_than_others_is_a_finding() {
    let kernel = |name: &str, dropped, boots| Dropped {
        kernel: name.into(),
        dropped,
        boots,
    };
    let found = |kernels: &[Dropped]| -> Vec<String> {
        dropped_more_often(kernels)
            .into_iter()
            .map(|k| k.kernel.clone())
            .collect()
    };
    assert_eq!(
        found(&[
            kernel("a", 5, 6),
            kernel("b", 0, 8),
            kernel("c", 0, 8),
            kernel("d", 1, 9)
        ]),
        ["a"]
    );
    // A bad night of the lab, not of one kernel.
    assert!(found(&[kernel("a", 3, 6), kernel("b", 3, 8), kernel("c", 4, 8)]).is_empty());
    assert!(
        found(&[kernel("a", 2, 2), kernel("b", 0, 50)]).is_empty(),
        "two may be chance"
    );
    assert!(
        found(&[kernel("a", 9, 9)]).is_empty(),
        "there is nobody to be compared with"
    );
    assert!(found(&[]).is_empty());
}

#[test]
fn the_tail_is_that_of_the_hypergeometric_distribution() {
    // All four aces among the first five cards: 48 / C(52, 5).
    assert!((tail(4, 5, 4, 52) - 48.0 / 2_598_960.0).abs() < 1e-12);
    assert!((tail(0, 5, 4, 52) - 1.0).abs() < 1e-9);
}
