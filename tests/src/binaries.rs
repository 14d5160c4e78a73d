//! Where the built programs are. `tests/run` builds them; by hand it takes the two commands named below.

use std::path::PathBuf;

/// Cargo's output folder of this profile, for the host (`target/debug`).
fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let deps = exe.parent().expect("a file lies in a folder");
    let named_deps = deps.file_name().is_some_and(|n| n == "deps");
    if named_deps {
        deps.parent()
            .expect("deps lies in the profile's folder")
            .to_path_buf()
    } else {
        deps.to_path_buf()
    }
}

pub fn daemon() -> PathBuf {
    let path = profile_dir().join("perfbisect");
    assert!(
        path.is_file(),
        "{}: not there; run `cargo build -p coordinator`",
        path.display()
    );
    path
}

/// The agent as it is shipped: linked statically, since it is also the init of guests, and optimised, since its own
/// micro benchmarks are to measure the kernel and not themselves.
pub fn agent() -> PathBuf {
    let target = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../target/x86_64-unknown-linux-gnu/release"
    );
    let path = PathBuf::from(target).join("perfbisect-agent");
    assert!(
        path.is_file(),
        "{}: not there; run `RUSTFLAGS='-C target-feature=+crt-static' cargo build --release \
         --target x86_64-unknown-linux-gnu -p perfbisect-agent`",
        path.display()
    );
    path.canonicalize().expect("it is there")
}

/// A folder below Cargo's own that outlives a test run: for what is dear to make and the same every time.
pub fn cache_dir(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../target/lab")
        .join(name);
    std::fs::create_dir_all(&folder).expect("target is writable");
    folder.canonicalize().expect("it was made just now")
}
