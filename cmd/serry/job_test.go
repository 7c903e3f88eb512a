package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/wire/stream"
)

// jobCommands are those by which a script plays a job at $ADDRESS:
//
//	members N                join as worker/0 to worker/N-1
//	arrive BARRIER I...      let these members wait at a barrier
//	meet BARRIER I...        the same, and wait until all that wait there have passed it
//	fail I TEXT              let one report an error
//	die I                    let one vanish
//	depart I                 let one want to leave
//	busy I...                let these members call every second, the first time before the script goes on
//	idle                     end that
//	leave                    let all leave politely
//	publish MANIFEST         let all publish the devices that they have in a manifest
//	until REGEXP ARGS...     run serry until its output matches
//	show ARGS...             run serry, and leave its output in the file shown, without what changes
//	                         from run to run
//	intrude N [INCARNATION]  let a process with number N try to join
//	follow ARGS...           run serry in the background, until the next follow
//	interrupt                end it as Ctrl-C does
//	vanish                   kill it
//	heard REGEXP             wait until a line of it matches, and leave its output in the file heard
//	web, mute, silent        put something else than a service at $SERRY_ADDRESS
//	taken                    take a port, and leave its address in $TAKEN
//	leaderless               put a server there that knows of no leader
func jobCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"members": members, "intrude": intrude, "arrive": arrive, "meet": meet, "fail": failOne, "die": die, "depart": depart, "leave": leave,
		"busy": busy, "idle": idle, "until": until, "show": show, "follow": follow, "heard": heard, "interrupt": interrupt, "vanish": vanish,
		"publish": publish, "taken": takePort,
		"web": pretend(func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			c.Close()
		}),
		"mute":       pretend(func(c net.Conn) { c.Close() }),
		"silent":     pretend(func(net.Conn) {}),
		"leaderless": pretend(func(c net.Conn) { stream.Redirect(c, "") }),
	}
}

// A job is the members that a script plays.
type job struct {
	members []*client.Member
	waits   sync.WaitGroup

	busy  context.CancelFunc // ends the calls of busy members; or nil
	calls sync.WaitGroup     // of them

	follows *exec.Cmd      // the command that is followed
	lines   *bufio.Scanner // of it
	heard   string         // of it so far
}

type jobKey struct{}

func jobOf(ts *testscript.TestScript) *job { return ts.Value(jobKey{}).(*job) }

func members(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	j := jobOf(ts)
	j.members = make([]*client.Member, n)
	errs := make([]error, n)
	for i := range n {
		j.waits.Go(func() {
			j.members[i], errs[i] = client.Join(context.Background(), client.Config{
				Address: ts.Getenv("ADDRESS"), Task: serry.TaskID{Job: "worker", Index: i}, Incarnation: serry.Incarnation(100 + i),
			})
		})
	}
	j.waits.Wait()
	ts.Check(errors.Join(errs...))
	ts.Defer(func() {
		for _, m := range j.members {
			m.Close()
		}
		j.waits.Wait()
	})
}

// intrude lets a process with a number and an incarnation of its own try to join until the script ends. It may try
// again and again: how the service answers is for the script to find out.
func intrude(ts *testscript.TestScript, _ bool, args []string) {
	number, err := strconv.Atoi(args[0])
	ts.Check(err)
	own := uint64(900)
	if len(args) > 1 {
		own, err = strconv.ParseUint(args[1], 10, 64)
		ts.Check(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	j, address := jobOf(ts), ts.Getenv("ADDRESS")
	ts.Defer(cancel) // runs before the members wait for it
	j.waits.Go(func() {
		m, err := client.Join(ctx, client.Config{Address: address, Task: serry.TaskID{Job: "worker", Index: number}, Incarnation: serry.Incarnation(own)})
		if err == nil {
			m.Close()
		}
	})
}

func (j *job) member(ts *testscript.TestScript, number string) *client.Member {
	i, err := strconv.Atoi(number)
	ts.Check(err)
	return j.members[i]
}

func arrive(ts *testscript.TestScript, _ bool, args []string) {
	j := jobOf(ts)
	for _, number := range args[1:] {
		m := j.member(ts, number)
		j.waits.Go(func() {
			// How it ends is for the script to find out.
			_ = m.Barrier(context.Background(), args[0], serry.BarrierOptions{})
		})
	}
}

func meet(ts *testscript.TestScript, _ bool, args []string) {
	j, errs := jobOf(ts), make(chan error, len(args))
	for _, number := range args[1:] {
		m := j.member(ts, number)
		go func() { errs <- m.Barrier(context.Background(), args[0], serry.BarrierOptions{}) }()
	}
	for range args[1:] {
		ts.Check(<-errs)
	}
	j.waits.Wait()
}

func failOne(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(jobOf(ts).member(ts, args[0]).Fail(context.Background(), errors.New(args[1])))
}

func die(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(jobOf(ts).member(ts, args[0]).Close())
}

func depart(ts *testscript.TestScript, _ bool, args []string) {
	j := jobOf(ts)
	m := j.member(ts, args[0])
	j.waits.Go(func() { _ = m.Leave(context.Background()) }) // it ends with the script
}

// callEvery is far less than the time after which a rank without calls is quiet.
const callEvery = time.Second

func busy(ts *testscript.TestScript, _ bool, args []string) {
	j := jobOf(ts)
	var ctx context.Context
	ctx, j.busy = context.WithCancel(context.Background())
	ts.Defer(func() { idle(ts, false, nil) })
	for _, number := range args {
		m := j.member(ts, number)
		call := func() error { return m.KV().Put(ctx, "busy/"+number, nil) }
		ts.Check(call())
		j.calls.Go(func() {
			ticker := time.NewTicker(callEvery)
			defer ticker.Stop()
			for call() == nil { // until it has left, or is to end
				select {
				case <-ticker.C:
				case <-ctx.Done():
				}
			}
		})
	}
}

func idle(ts *testscript.TestScript, _ bool, _ []string) {
	j := jobOf(ts)
	j.busy()
	j.calls.Wait()
}

func leave(ts *testscript.TestScript, _ bool, _ []string) {
	var all sync.WaitGroup
	for _, m := range jobOf(ts).members {
		all.Go(func() { _ = m.Leave(context.Background()) })
	}
	all.Wait()
}

// program is serry with the variables of the script.
func program(ts *testscript.TestScript, args []string) *exec.Cmd {
	path, err := exec.LookPath("serry")
	ts.Check(err)
	cmd := exec.Command(path, args...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "SERRY_ADDRESS="+ts.Getenv("ADDRESS"), "TZ=UTC")
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "SERRY_TLS_CERT", "SERRY_TLS_KEY", "SERRY_TLS_CA"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	return cmd
}

func follow(ts *testscript.TestScript, _ bool, args []string) {
	j, cmd := jobOf(ts), program(ts, args)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, or ended before
	})
	j.follows, j.lines, j.heard = cmd, bufio.NewScanner(out), ""
}

// interrupt ends the command that is followed as Ctrl-C does. It ends in order, which its exit status tells.
func interrupt(ts *testscript.TestScript, _ bool, _ []string) {
	cmd := jobOf(ts).follows
	ts.Check(cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
		ts.Fatalf("it ended with %v; want exit status %d", err, exitInterrupted)
	}
}

// vanish kills the command that is followed, so that it says no goodbye.
func vanish(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(jobOf(ts).follows.Process.Kill())
}

func heard(ts *testscript.TestScript, _ bool, args []string) {
	j, want := jobOf(ts), regexp.MustCompile(args[0])
	for j.lines.Scan() {
		j.heard += normalise(j.lines.Text()) + "\n"
		if want.MatchString(j.lines.Text()) {
			ts.Check(os.WriteFile(ts.MkAbs("heard"), []byte(j.heard), 0o600))
			return
		}
	}
	ts.Fatalf("it ended without a line that matches %q:\n%s", args[0], j.heard)
}

// untilPatience is when a script is given up whose job does not get there.
const untilPatience = 5 * time.Minute

func until(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile(args[0])
	deadline := time.Now().Add(untilPatience)
	for {
		out, _ := program(ts, args[1:]).CombinedOutput() // a failure may be what is waited for
		if want.Match(out) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("serry %s: no match for %q in\n%s", strings.Join(args[1:], " "), args[0], out)
		}
	}
}

// changing is what differs between two runs of a script, and what stands for it.
var changing = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`"service": "\d+"`), `"service": "N"`},
	{regexp.MustCompile(`service: "\d+"`), `service: "N"`},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`), "TIME"},
	{regexp.MustCompile(`(seconds"?: ?)[\d.e-]+`), "${1}0"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "TIME"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?s\b`), "AGE"},
	{regexp.MustCompile(`AGE to AGE`), "AGE"},              // where two of them differ
	{regexp.MustCompile(`\d+ calls wait`), "N calls wait"}, // those that keep members alive come and go
	{regexp.MustCompile(`(waiting_calls"?: )\d+`), "${1}0"},
	{regexp.MustCompile(`(\S)  +`), "$1  "}, // columns are as wide as the ages in them
}

func show(ts *testscript.TestScript, neg bool, args []string) {
	out, err := program(ts, args).Output()
	if neg != (err != nil) {
		ts.Fatalf("serry %s: %v", strings.Join(args, " "), err)
	}
	ts.Check(os.WriteFile(ts.MkAbs("shown"), []byte(normalise(string(out))), 0o600))
}

func normalise(text string) string {
	for _, c := range changing {
		text = c.what.ReplaceAllString(text, c.by)
	}
	return text
}

// takePort listens on a port until the script ends.
func takePort(ts *testscript.TestScript, _ bool, _ []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv("TAKEN", l.Addr().String())
}

// pretend serves $SERRY_ADDRESS with something that is no coordination service.
func pretend(answer func(net.Conn)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, _ []string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		ts.Check(err)
		ts.Setenv("SERRY_ADDRESS", l.Addr().String())
		var open []net.Conn // until the end, where nobody closes them earlier
		done := make(chan struct{})
		go func() {
			defer close(done)
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				open = append(open, c)
				answer(c)
			}
		}()
		ts.Defer(func() {
			l.Close()
			<-done
			for _, c := range open {
				c.Close()
			}
		})
	}
}
