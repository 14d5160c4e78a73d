//! A real test machine: its own kernel on its own disk, reached over SSH alone, that kexecs kernels built elsewhere, with
//! one that panics and one that hangs in the way, power cycled as by a BMC. In the slow tier.

use lab::binaries::cache_dir;
use lab::daemon::{Setup, assert_found};
use lab::kernel_tree::{self, KernelTree};
use lab::vm::Vm;
use serde_json::{Value, json};
use std::time::Duration;

/// A whole kernel build, some ten small ones and thirty boots of a machine: half an hour alone, ten times that shared.
const LIMIT: Duration = Duration::from_secs(5 * 3600);

/// The machine's time is that of its instructions: the ten busy seconds that a panicked kernel waits would be minutes.
const BOOT: &str = "method = \"kexec\"\nload_options = [\"-c\"]\n\
    [boot.trip]\nappend = \"panic=1\"\nready = [\"sh\", \"-c\", \"systemctl is-system-running --wait; true\"]\n\
    shutdown_limit_s = 120\nfirmware_limit_s = 120\nboot_limit_s = 240";

#[ignore = "boots some thirty kernels on a virtual machine"]
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_of_its_own_finds_the_commit_with_a_panic_and_a_hang_in_the_way() {
    let seed = std::env::var("PB_TEST_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(5);
    let tree = KernelTree::for_machine(seed, 12.0);
    let folder = tempfile::tempdir().unwrap();
    let vm_folder = folder.path().join("vm");
    std::fs::create_dir(&vm_folder).unwrap();
    let vm = Vm::start(&vm_folder);

    let mut setup = Setup::new(folder.path());
    setup.trees.push((
        "linux".into(),
        tree.repository.clone(),
        kernel_tree::machine_recipe(0),
    ));
    // The builder's folder outlives the test: the next one builds what changed.
    let work_dir = cache_dir("builder");
    setup.machines.push(format!(
        "name = \"builder\"\naddress = \"local\"\nroles = [\"build\"]\nwork_dir = {work_dir:?}\n[boot]\nmethod = \"none\"\n"
    ));
    setup.machines.push(vm.machine_file("rack1", BOOT));
    let workload = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/workloads/pipe.toml");
    setup
        .workloads
        .push(std::fs::read_to_string(workload).expect("the workload is shipped"));
    let daemon = setup.start(0).await;
    let id = daemon
        .submit(&json!({
            "tree": "linux", "good": "v1.0", "bad": "v1.1", "workload": "pipe",
            "metric": "perf_bench.usecs_per_op", "min_effect_pct": 4.0, "machine": "rack1",
            "costs": { "build_s": 60, "boot_s": 60, "run_s": 1 },
        }))
        .await;
    let found = daemon.concluded(&id, LIMIT).await;
    assert_found(&found, tree.first_bad());
    let machines: Value = daemon.get("/api/v1/machines").await;
    println!("{machines:#}\n{found:#}");
    assert!(vm.ssh(&[
        "sh",
        "-c",
        "'test $(ls /lib/modules | wc -l) = 1 && test ! -e /boot/perfbisect/kernel'"
    ]));
}
