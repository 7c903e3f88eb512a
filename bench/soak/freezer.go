package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/fleet"
)

// A frozenDisk is the folder of one server, on a filesystem of its own that stands still now and then. The
// filesystem is in a file, mounted by a loop device.
//
// A filesystem that stays frozen blocks every process that touches it, so it must thaw whatever happens to
// this process. The guard does the work: a process of its own, which ignores the signals of a terminal.
// It freezes for a time that it knows from the start, and when this process ends, however it ends, the pipe
// between them closes: the guard thaws and unmounts. If the guard dies, this process does.
type frozenDisk struct {
	folder  string
	guard   *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Reader
	out     io.Closer // of answers
}

// errNoFreeze says that this machine cannot freeze a folder, and why.
var errNoFreeze = errors.New("no folder can be frozen here")

const (
	// diskBytes is what the image of the filesystem may grow to. It has holes: only what is written counts.
	diskBytes = 2 << 30

	guardCommand = "guard-frozen-folder" // the first argument of a guard; the folder is the second
)

// mountFrozen makes a folder a filesystem of its own. The error is errNoFreeze where that cannot be done.
func mountFrozen(folder string) (_ *frozenDisk, err error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: a mount needs root", errNoFreeze)
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount", "fsfreeze"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoFreeze, err)
		}
	}
	image := filepath.Clean(folder) + ".image"
	defer os.Remove(image) // once mounted, it lives as long as the mount
	if err := makeImage(image, folder); err != nil {
		return nil, err
	}
	if err := command("mount", "-o", "loop", image, folder); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoFreeze, err)
	}
	d := &frozenDisk{folder: folder}
	if err := d.startGuard(); err != nil {
		return nil, errors.Join(err, command("umount", folder))
	}
	return d, nil
}

func makeImage(image, folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(image, diskBytes); err != nil {
		return err
	}
	return command("mkfs.ext4", "-q", "-F", image)
}

// command runs a tool, and returns what it complained about.
func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (d *frozenDisk) startGuard() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d.guard = exec.Command(self, guardCommand, d.folder)
	d.guard.Stderr = os.Stderr
	d.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if d.orders, err = d.guard.StdinPipe(); err != nil {
		return err
	}
	out, err := d.guard.StdoutPipe()
	if err != nil {
		return err
	}
	d.answers, d.out = bufio.NewReader(out), out
	return d.guard.Start()
}

// freeze lets the folder stand still for a time, and returns when it moves again.
func (d *frozenDisk) freeze(length time.Duration) error {
	if _, err := fmt.Fprintln(d.orders, length); err != nil {
		return errors.Join(err, d.thaw())
	}
	answer, err := d.answers.ReadString('\n')
	if err != nil { // the guard is gone
		return errors.Join(fmt.Errorf("guard of %s: %w", d.folder, err), d.thaw())
	}
	if answer = strings.TrimSpace(answer); answer != thawed {
		return errors.New(answer)
	}
	return nil
}

// thaw is for a folder whose guard cannot.
func (d *frozenDisk) thaw() error { return command("fsfreeze", "-u", d.folder) }

// close unmounts the folder, of which no process may have a file open any more.
func (d *frozenDisk) close() error {
	err := d.orders.Close()
	return errors.Join(err, d.guard.Wait())
}

const thawed = "thawed" // what a guard says after each freeze

// guard freezes a folder for each time that it reads, and unmounts it when there is no more to read.
func guard(folder string, orders io.Reader, answers io.Writer) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE) // the last: an answer that is not read
	over := make(chan struct{})
	lengths := make(chan time.Duration)
	go func() {
		defer close(over)
		for lines := bufio.NewScanner(orders); lines.Scan(); {
			if d, err := time.ParseDuration(lines.Text()); err == nil {
				lengths <- d
			}
		}
	}()
	for {
		select {
		case d := <-lengths:
			if err := freezeFor(folder, d, over); err != nil {
				fmt.Fprintln(answers, strings.ReplaceAll(err.Error(), "\n", ": "))
			} else {
				fmt.Fprintln(answers, thawed)
			}
		case <-over:
			return unmount(folder)
		}
	}
}

// freezeFor freezes a folder for a time, or until over is closed.
func freezeFor(folder string, d time.Duration, over <-chan struct{}) error {
	if err := command("fsfreeze", "-f", folder); err != nil {
		return errors.Join(err, ignored(command("fsfreeze", "-u", folder)))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-over:
	}
	return command("fsfreeze", "-u", folder)
}

// ignored drops the error of what is done to be sure: most likely there is nothing to thaw.
func ignored(error) error { return nil }

const (
	unmountTries = 50
	unmountPause = 100 * time.Millisecond
)

// unmount waits a little for processes that end, and then takes the folder from those that do not.
func unmount(folder string) error {
	_ = command("fsfreeze", "-u", folder) // it is frozen only if something went wrong
	for range unmountTries {
		if command("umount", folder) == nil {
			return nil
		}
		time.Sleep(unmountPause)
	}
	return command("umount", "-l", folder)
}

// A freezer freezes the folder of one server now and then: once while it leads, once as it comes, and so on.
// Kills come in the rhythm of freezes, so that without this the server would have the same part each time.
type freezer struct {
	disk          *frozenDisk
	service       *fleet.Service
	server        int // whose folder it is
	length, every time.Duration
	calm          *sync.Mutex // held by the goroutine that disturbs the service: kills and freezes do not overlap
	progress      io.Writer
	frozen        int // owned by run: how often
}

// run freezes until ctx ends. The folder is not frozen when it returns.
func (f *freezer) run(ctx context.Context, c *clients) error {
	// The first freeze comes between two kills.
	return repeat(ctx, f.calm, f.every/3, f.every, func() error { return f.freeze(ctx, c) })
}

func (f *freezer) freeze(ctx context.Context, c *clients) error {
	part := "whatever it does"
	if f.frozen%2 == 0 {
		part = "while it leads"
		if err := f.service.Lead(ctx, f.server); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	c.disturb(freeze)
	f.frozen++
	fmt.Fprintf(f.progress, "soak: the folder of %s stands still for %v, %s (%d calls so far, %d dead)\n",
		f.service.Addresses()[f.server], f.length, part, c.calls.Load(), c.dead.Load())
	return f.disk.freeze(f.length)
}
