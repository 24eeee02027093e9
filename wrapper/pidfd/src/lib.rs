//! The exit status of a process that has another parent, by the ioctl `PIDFD_GET_INFO`.
//!
//! `waitid` is available only to the parent. Since Linux 6.15 a pidfd that was opened while the process was running also returns the exit
//! status, to each process that has the pidfd, after the parent has reaped the process. The structure and the numbers are those of
//! `linux/pidfd.h`.
//!
//! This crate has unsafe code, because `rustix` 1.1 and the crates for pidfds offer this call in no safe form.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::{
    io::Errno,
    ioctl::{Opcode, Updater, ioctl, opcode},
};

/// `PIDFD_INFO_EXIT`: the caller requests the exit status, and the kernel has set it.
const EXIT: u64 = 1 << 3;

/// `PIDFD_GET_INFO`. The size of the structure is part of the number, so the kernel writes at most the size of `Info`.
const GET_INFO: Opcode = opcode::read_write::<Info>(0xff, 11);

/// The first published version of `struct pidfd_info`, 64 bytes long.
#[repr(C)]
#[derive(Debug, Default)]
struct Info {
    /// Input: the requested fields. Output: the fields that the kernel has set.
    mask: u64,
    cgroup: u64,
    /// The process, its thread group, its parent, and its eight user and group identifiers.
    ids: [u32; 11],
    /// As from `wait`.
    exit_code: i32,
}

/// The kernel's report about the exit of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The process returned this code.
    Code(i32),
    /// This signal ended the process.
    Signal(i32),
    /// The process is running, or its parent has not reaped it yet.
    NotCollected,
}

/// How the process of a pidfd ended.
///
/// # Errors
///
/// `Unsupported` on a kernel before 6.15; others as from `ioctl(2)`, such as `EBADF` for a descriptor that is not a pidfd.
pub fn ending(pidfd: impl AsFd) -> io::Result<Ending> {
    let request = || {
        let mut info = Info { mask: EXIT, ..Info::default() };
        get_info(pidfd.as_fd(), &mut info).map(|()| info)
    };
    // The kernel reads first the exit status and then the process. If the parent reaps the process in between, it finds neither (ESRCH). The
    // second answer is about a reaped process.
    let answer = request().or_else(|errno| if errno == Errno::SRCH { request() } else { Err(errno) });
    let info = answer.map_err(|errno| match errno {
        // Kernels before 6.13 do not have this call.
        Errno::NOTTY | Errno::INVAL => io::ErrorKind::Unsupported.into(),
        // 6.13 and 6.14 have the call, but not the exit status, and have no data about a reaped process.
        Errno::SRCH => io::ErrorKind::Unsupported.into(),
        other => io::Error::from(other),
    })?;
    Ok(match (info.mask & EXIT, info.exit_code) {
        (0, _) => Ending::NotCollected,
        (_, status) if status & 0x7f == 0 => Ending::Code((status >> 8) & 0xff),
        (_, status) => Ending::Signal(status & 0x7f),
    })
}

fn get_info(pidfd: BorrowedFd<'_>, info: &mut Info) -> Result<(), Errno> {
    // SAFETY: the number is made from `Info`, which has the layout that the kernel reads and writes for it.
    let request = unsafe { Updater::<GET_INFO, Info>::new(info) };
    // SAFETY: `request` borrows `info` for the whole call, and the kernel writes at most the size that is part of the request number.
    unsafe { ioctl(pidfd, request) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pidfd_info_struct_has_kernel_size() {
        assert_eq!(size_of::<Info>(), 64);
    }
}
