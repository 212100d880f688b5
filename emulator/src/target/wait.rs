//! Waiting for sockets, and waking who waits: the system calls that the
//! standard library does not have.

use std::{
    io::{self, ErrorKind},
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd,
    time::Duration,
};

/// What a socket is waited for.
#[derive(Clone, Copy)]
pub(super) struct Interest {
    pub(super) input: bool,
    pub(super) output: bool,
}

/// Waits until the socket is ready or the time is over; `None` waits for ever.
/// Returns whether the connection is gone in both directions.
pub(super) fn wait(
    socket: &TcpStream,
    interest: Interest,
    time: Option<Duration>,
) -> io::Result<bool> {
    let mut events = 0;
    if interest.input {
        events |= libc::POLLIN;
    }
    if interest.output {
        events |= libc::POLLOUT;
    }
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    let time = time.map(|time| libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one pollfd, a timespec or NULL, and no signal mask; all of them
    // outlive the call.
    let ready = unsafe { libc::ppoll(&mut poll, 1, time, std::ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == ErrorKind::Interrupted { Ok(false) } else { Err(error) };
    }
    Ok(poll.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0)
}

/// Makes `accept` fail, now and from now on.
pub(super) fn stop_listening(listener: &TcpListener) {
    // SAFETY: the descriptor is open as long as the listener is borrowed.
    // Failure means that it does not listen any more, which is what is wanted.
    unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
}
