//! The few calls that neither std nor rustix offers, each behind a safe function.

use rustix::io::Errno;
use std::ffi::{c_char, c_int, c_void};

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
    fn klogctl(kind: c_int, buffer: *mut c_char, length: c_int) -> c_int;
    fn mmap(
        at: *mut c_void,
        bytes: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
    fn ioctl(fd: c_int, request: u64, argument: *mut c_int) -> c_int;
}

/// std starts children by `posix_spawn` only where it finds these two weakly linked; a static link leaves them out
/// unless somebody names them. Its other way needs a socket pair, which a kernel without networking does not have.
#[cfg(target_env = "gnu")]
mod spawn {
    unsafe extern "C" {
        fn gnu_get_libc_version();
        fn posix_spawn_file_actions_addchdir_np();
    }

    #[used]
    static KEPT: [unsafe extern "C" fn(); 2] = [gnu_get_libc_version, posix_spawn_file_actions_addchdir_np];
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// A child that ends at once.
pub fn fork_and_wait() -> Result<(), Errno> {
    // SAFETY: the child calls nothing but `_exit`, so that no lock or allocator state of the parent matters to it.
    let pid = unsafe { fork() };
    match pid {
        0 => unsafe { _exit(0) },
        pid if pid < 0 => Err(last_error()),
        pid => {
            let mut status = 0;
            // SAFETY: `status` lives through the call.
            if unsafe { waitpid(pid, &mut status, 0) } < 0 {
                Err(last_error())
            } else {
                Ok(())
            }
        }
    }
}

/// Private anonymous memory, given back at once; with `touch` each of its pages is written to.
pub fn map_and_unmap(bytes: usize, touch: bool) -> Result<(), Errno> {
    const PAGE: usize = 4096;
    const READ_WRITE: c_int = 1 | 2;
    const PRIVATE_ANONYMOUS: c_int = 2 | 0x20;
    // SAFETY: a new mapping at an address of the kernel's choice; it is ours alone and unmapped below.
    unsafe {
        let at = mmap(std::ptr::null_mut(), bytes, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
        if at as isize == -1 {
            return Err(last_error());
        }
        if touch {
            for offset in (0..bytes).step_by(PAGE) {
                at.cast::<u8>().add(offset).write_volatile(1);
            }
        }
        if munmap(at, bytes) < 0 {
            Err(last_error())
        } else {
            Ok(())
        }
    }
}

/// Up to which level kernel messages appear on the console; 1 lets only emergencies through.
pub fn set_console_level(level: i32) {
    const SET_LEVEL: c_int = 8;
    // SAFETY: this kind reads no buffer.
    unsafe { klogctl(SET_LEVEL, std::ptr::null_mut(), level) };
}

/// `WDIOC_SETTIMEOUT` (linux/watchdog.h); a device that cannot do it keeps its own.
pub fn set_watchdog_timeout(fd: c_int, seconds: c_int) {
    const SET_TIMEOUT: u64 = 0xc004_5706;
    let mut seconds = seconds;
    // SAFETY: the call reads and writes one int, which lives through it.
    unsafe { ioctl(fd, SET_TIMEOUT, &raw mut seconds) };
}
