use super::*;

/// A kernel whose answers to `io_uring_enter` are scripted; without script it takes all.
#[derive(Default)]
struct Kernel {
    queued: VecDeque<u64>,
    taken: VecDeque<u64>,
    completed: VecDeque<u64>,
    script: VecDeque<Answer>,
    enters: usize,
}

enum Answer {
    /// Takes at most so many commands.
    Take(usize),
    /// Takes so many and reports an error all the same.
    TakeThenFail(usize, i32),
    Fail(i32),
}

impl Kernel {
    fn scripted(script: impl IntoIterator<Item = Answer>) -> Self {
        Kernel { script: script.into_iter().collect(), ..Kernel::default() }
    }

    fn take(&mut self, most: usize) {
        for _ in 0..most.min(self.queued.len()) {
            self.taken.extend(self.queued.pop_front());
        }
    }
}

impl RawRing for Kernel {
    unsafe fn push(&mut self, token: u64, _: &PassthroughCommand, _: Addressing) {
        self.queued.push_back(token);
    }

    fn queued(&mut self) -> usize {
        self.queued.len()
    }

    fn enter(&mut self, submit: usize, want: usize) -> io::Result<()> {
        self.enters += 1;
        assert!(submit <= self.queued.len());
        match self.script.pop_front() {
            Some(Answer::Fail(errno)) => return Err(io::Error::from_raw_os_error(errno)),
            Some(Answer::TakeThenFail(most, errno)) => {
                self.take(most.min(submit));
                return Err(io::Error::from_raw_os_error(errno));
            }
            Some(Answer::Take(most)) if most < submit => {
                self.take(most);
                return Ok(());
            }
            Some(Answer::Take(_)) | None => self.take(submit),
        }
        while self.completed.len() < want {
            let token = self.taken.pop_front().expect("waits for more than is in flight");
            self.completed.push_back(token);
        }
        Ok(())
    }

    fn ready(&mut self) -> usize {
        self.completed.len()
    }

    fn pop(&mut self) -> Option<RawCompletion> {
        self.completed.pop_front().map(|token| RawCompletion { token, result: 0, dw0: 0 })
    }
}

/// Pushes `count` commands with tokens from 0 and lets `test` submit them.
fn with(kernel: &mut Kernel, count: u64, test: impl FnOnce(&mut Submission<'_, Kernel>)) {
    let (regions, counters) = (RegionTable::default(), Counters::default());
    let mut submission = Submission::new(kernel, 64, &regions, &counters);
    for token in 0..count {
        // SAFETY: the scripted kernel touches no memory.
        unsafe { submission.push(token, &PassthroughCommand::default(), Addressing::Contiguous) };
    }
    test(&mut submission);
    assert_eq!(counters.snapshot().enters, kernel.enters as u64);
}

#[test]
fn what_the_kernel_left_behind_is_submitted_again() {
    let mut kernel = Kernel::scripted([Answer::Take(1), Answer::Take(3)]);
    with(&mut kernel, 10, |submission| {
        submission.submit(5).expect("nothing was refused");
        assert_eq!(std::iter::from_fn(|| submission.pop()).count(), 5);
    });
    assert!(kernel.queued.is_empty());
    assert_eq!(kernel.enters, 3);
}

#[test]
fn a_signal_is_no_reason_to_stop() {
    let interrupted = [Answer::Fail(libc::EINTR), Answer::TakeThenFail(2, libc::EINTR)];
    let mut kernel = Kernel::scripted(interrupted);
    with(&mut kernel, 4, |submission| {
        submission.submit(4).expect("nothing was refused");
        assert_eq!(std::iter::from_fn(|| submission.pop()).count(), 4);
    });
}

#[test]
fn a_busy_kernel_gets_its_completions_taken_away_before_it_is_asked_again() {
    for errno in [libc::EBUSY, libc::EAGAIN] {
        let mut kernel = Kernel::scripted([Answer::TakeThenFail(3, errno)]);
        with(&mut kernel, 5, |submission| {
            submission.submit(0).expect("nothing was refused");
            assert!(submission.pop().is_some(), "it waited for one of the three");
            submission.submit(4).expect("nothing was refused");
            assert_eq!(std::iter::from_fn(|| submission.pop()).count(), 4);
        });
        assert!(kernel.queued.is_empty());
    }
}

#[test]
fn a_kernel_short_of_memory_is_asked_again_when_nothing_is_in_flight() {
    let mut kernel = Kernel::scripted([Answer::Fail(libc::EAGAIN), Answer::Take(0)]);
    with(&mut kernel, 2, |submission| {
        submission.submit(2).expect("nothing was refused");
        assert_eq!(std::iter::from_fn(|| submission.pop()).count(), 2);
    });
    assert_eq!(kernel.enters, 3);
}

#[test]
fn commands_that_can_never_start_are_named_and_the_started_ones_are_waited_for() {
    let mut kernel = Kernel::scripted([Answer::Take(2), Answer::Fail(libc::EBADR)]);
    with(&mut kernel, 5, |submission| {
        let refused = submission.submit(1).expect_err("it was refused");
        assert_eq!(refused, Refused { errno: libc::EBADR, tokens: vec![2, 3, 4] });
        assert!(submission.refused());
        submission.submit(2).expect("it is refused once");
        assert_eq!(std::iter::from_fn(|| submission.pop()).count(), 2);
    });
    assert_eq!(kernel.queued.len(), 3, "the refused ones were never submitted");
}

#[test]
fn waiting_goes_on_when_the_kernel_can_no_longer_be_asked() {
    let script = [Answer::Take(2), Answer::Fail(libc::ENXIO), Answer::Fail(libc::EINTR)];
    let mut kernel = Kernel::scripted(script.into_iter().chain([Answer::Fail(libc::ENOMEM)]));
    with(&mut kernel, 3, |submission| {
        submission.submit(0).expect_err("the third was refused");
        submission.submit(2).expect("it only waits");
        assert_eq!(std::iter::from_fn(|| submission.pop()).count(), 2);
    });
}
