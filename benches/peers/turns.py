"""Runs several programs as if each had the machine to itself: a window each in turn, the others
stopped. What disturbs a shared machine for minutes disturbs all of them alike."""

import os
import signal
import subprocess
import tempfile
import threading
import time


class Program:
    """A command that is stopped but for its turns. `lines` is what it printed, each with the
    seconds since its start; [`running`] tells how many of them it ran."""

    def __init__(self, command, env):
        self.lines, self.pauses = [], []  # pauses: (start, end), seconds since the start
        self.errors = tempfile.TemporaryFile("w+")
        self.started = self.paused = time.monotonic()
        self.process = subprocess.Popen(
            [str(word) for word in command],
            env=env,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            start_new_session=True,
        )
        self.signal(signal.SIGSTOP)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic() - self.started, line.rstrip("\n")))

    def signal(self, number):
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def turn(self, window):
        """Lets it run for so many seconds. False if it has ended."""
        self.pauses.append((self.paused - self.started, time.monotonic() - self.started))
        self.signal(signal.SIGCONT)
        try:
            self.process.wait(window)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGSTOP)
        self.paused = time.monotonic()
        if self.process.returncode:
            self.errors.seek(0)
            raise SystemExit(f"error: {self.process.args[:3]} failed: {self.errors.read().strip()}")
        return self.process.returncode is None

    def running(self, since_start=None):
        """How long it had run by then, or in all."""
        end = self.paused - self.started if since_start is None else since_start
        return end - sum(min(to, end) - at for at, to in self.pauses if at < end)


def in_turns(commands, window):
    """Runs the commands, pairs of words and environment, to their ends; gives the programs."""
    signal.signal(signal.SIGTERM, lambda *_: exit(1))  # through `finally`
    programs = []
    try:
        for command in commands:
            programs.append(Program(*command))
        live = programs
        while live:
            live = [program for program in live if program.turn(window)]
    finally:
        for program in programs:
            program.signal(signal.SIGKILL)
    for program in programs:
        program.reader.join()
    return programs
