package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/pause"
)

const (
	startPatience = 3 * time.Minute  // for a job to come to the step
	sayPatience   = 30 * time.Second // unless -wait says otherwise
	showPatience  = 5 * time.Second  // for what a line rests on
	askEvery      = 200 * time.Millisecond
)

// A job is serry run, or several that belong together, and what they say.
type job struct {
	options
	address string // of the service, once it is known
	lines   chan string
	ended   chan struct{} // closed when all processes have said their last line
	readers sync.WaitGroup
	once    sync.Once // of waiting for the readers
	cmds    []*exec.Cmd
	said    strings.Builder // all lines that were read, and the answers of serry why

	recorder *recorder // or nil
}

func (o options) newJob() *job {
	return &job{options: o, lines: make(chan string, 1<<16), ended: make(chan struct{})}
}

// run starts serry run with flags and a command, after a prefix that leads to another host.
func (j *job) run(prefix, env, flags []string, command ...string) error {
	if !hasService(flags) {
		own, err := j.record(context.Background())
		if err != nil {
			return err
		}
		flags = append(flags, own...)
	}
	args := append(append([]string{}, prefix...), j.binary, "run")
	if j.hangAfter > 0 {
		args = append(args, "--hang-after", j.hangAfter.String())
	}
	return j.start(env, append(append(append(args, flags...), "--"), command...)...)
}

// start starts a process whose lines are those of the job.
func (j *job) start(env []string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = j.dir, append(append(os.Environ(), j.registry()), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	j.cmds = append(j.cmds, cmd)
	j.readers.Go(func() {
		for scan := bufio.NewScanner(output); scan.Scan(); {
			j.lines <- scan.Text()
		}
	})
	return nil
}

// close ends the job, politely and then at once, and waits for it.
func (j *job) close() {
	for range 2 {
		for _, cmd := range j.cmds {
			_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		}
	}
	j.awaitReaders()
	for open := true; open; {
		select {
		case <-j.lines: // no other goroutine reads them now
		case <-j.ended:
			open = false
		}
	}
	for _, cmd := range j.cmds {
		_ = cmd.Wait() // however it ended
	}
}

// awaitReaders closes ended when no process has more to say. It is called when all processes have been started.
func (j *job) awaitReaders() {
	j.once.Do(func() {
		go func() {
			j.readers.Wait()
			close(j.ended)
		}()
	})
}

var service = regexp.MustCompile(`service on (\S+)`)

// await reads lines until n of them have a word. The address of the service is in one of them.
func (j *job) await(ctx context.Context, word string, n int) error {
	j.awaitReaders()
	timer := time.NewTimer(startPatience)
	defer timer.Stop()
	for n > 0 {
		ended := j.ended
		if len(j.lines) > 0 {
			ended = nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the job ended before %s; it said:\n%s", word, j.said.String())
		case line := <-j.lines:
			j.said.WriteString(line + "\n")
			if m := service.FindStringSubmatch(line); m != nil {
				j.address = strings.TrimSuffix(m[1], ",")
			}
			if strings.Contains(line, word) {
				n--
			}
		case <-timer.C:
			return fmt.Errorf("no %s after %v; it said:\n%s", word, startPatience, j.said.String())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// find waits for a line that is right, and then for an answer of serry why that shows what it rests on.
func (j *job) find(ctx context.Context, s scenario) (finding, error) {
	right, later, patience := regexp.MustCompile(s.right), regexp.MustCompile(""), showPatience
	if s.stuck != "" && j.hangAfter > 0 {
		later, patience = regexp.MustCompile(s.stuck), j.hangAfter+showPatience
	}
	if j.patient {
		patience = max(patience, j.patience)
	}
	ended := j.ended
	began := time.Now()
	var found finding
	ctx, stop := context.WithCancel(ctx)
	answers := j.ask(ctx)
	defer func() {
		stop()
		for range answers {
		}
	}()
	proven := false
	for end := time.NewTimer(j.patience); ; {
		text, counts := "", true
		select {
		case text = <-j.lines:
			counts = j.journals == "" // the service may not have it yet, and so not its journal
		case text = <-answers:
		case <-ended:
			if ended = nil; len(j.lines) == 0 {
				j.said.WriteString("(the processes of the job have ended)\n")
			}
			continue
		case <-end.C:
			found.lacks, found.said = found.line != "", j.said.String()
			return found, nil
		case <-ctx.Done():
			return found, context.Cause(ctx)
		}
		j.said.WriteString(text + "\n")
		first, _, _ := strings.Cut(text, "\n")
		if found.line == "" && counts && right.MatchString(first) {
			found.after, found.line = time.Since(began), strings.TrimPrefix(first, "serry: ")
			end.Reset(patience)
		}
		if !proven && right.MatchString(first) {
			found.grade, proven = s.proves(text)
		}
		if proven && later.MatchString(j.said.String()) {
			return found, nil
		}
	}
}

var gradeLine = regexp.MustCompile(`(?m)^  grade +(sure|likely|possible): `)

// grades are those that an answer may have, the best first.
var grades = []diagnose.Grade{diagnose.Sure, diagnose.Likely, diagnose.Possible, ""}

// proves says whether an answer shows what its first line rests on, and with which grade.
func (s scenario) proves(answer string) (grade diagnose.Grade, ok bool) {
	if m := gradeLine.FindStringSubmatch(answer); m != nil {
		grade = diagnose.Grade(m[1])
	}
	for _, shown := range s.shown {
		if !regexp.MustCompile(shown).MatchString(answer) {
			return grade, false
		}
	}
	return grade, slices.Index(grades, grade) <= slices.Index(grades, s.grade)
}

// ask asks serry why again and again, beside the lines of the job: a service that has ended keeps the command waiting. When it does
// not answer, the job may have ended.
func (j *job) ask(ctx context.Context) <-chan string {
	answers := make(chan string)
	go func() {
		defer close(answers)
		for pause.For(ctx, askEvery) == nil {
			out := j.why(ctx, "--address", j.address)
			if len(out) == 0 {
				out = j.why(ctx, "--ended")
			}
			select {
			case answers <- string(out):
			case <-ctx.Done():
			}
		}
	}()
	return answers
}

// why is the answer of serry why; its status says what it says.
func (j *job) why(ctx context.Context, args ...string) []byte {
	cmd := exec.CommandContext(ctx, j.binary, append([]string{"why", "-o", "wide"}, args...)...)
	cmd.Env = append(os.Environ(), j.registry())
	out, _ := cmd.Output()
	return out
}

// registry is the variable that names where the job is listed: in a folder of its own, so that the job which ended last there is this one.
func (j *job) registry() string { return "XDG_RUNTIME_DIR=" + j.dir }

// injected plays a job whose rank says itself when it happens.
func (j *job) injected(ctx context.Context, s scenario) (finding, error) {
	defer j.close()
	if err := j.await(ctx, "INJECT", 1); err != nil {
		return finding{}, err
	}
	found, err := j.find(ctx, s)
	if err == nil {
		err = j.keep(ctx, s, found)
	}
	return found, err
}

// playJob plays what a rank of jax does by itself.
func playJob(ctx context.Context, o options, s scenario) (finding, error) {
	j := o.newJob()
	if err := j.run(nil, nil, []string{"-n", "4"}, o.python, "train.py", s.name); err != nil {
		return finding{}, err
	}
	return j.injected(ctx, s)
}

// playScript plays a job whose ranks are started by a shell, which may change what rank 3 is.
func playScript(ctx context.Context, o options, s scenario, script string) (finding, error) {
	j := o.newJob()
	if err := j.run(nil, nil, []string{"-n", "4"}, "sh", "-c", script, o.python, s.name); err != nil {
		return finding{}, err
	}
	return j.injected(ctx, s)
}

func playProgram(ctx context.Context, o options, s scenario) (finding, error) {
	return playScript(ctx, o, s, `[ $SERRY_TASK = 3 ] && echo INJECT && exec $0 eval.py $1; exec $0 train.py $1`)
}

func playWorld(ctx context.Context, o options, s scenario) (finding, error) {
	return playScript(ctx, o, s, `[ $SERRY_TASK = 3 ] && echo INJECT && export OMPI_COMM_WORLD_SIZE=5; exec $0 train.py $1`)
}

// playStale plays a job whose first attempt fails, and whose rank 3 starts a process of that attempt again in the second.
func playStale(ctx context.Context, o options, s scenario) (finding, error) {
	j := o.newJob()
	if err := j.run(nil, nil, []string{"-n", "4", "--restart", "all", "--max-restarts", "1"}, o.python, "train.py", s.name); err != nil {
		return finding{}, err
	}
	return j.injected(ctx, s)
}

// playService starts a service on a port that this process has.
func playService(ctx context.Context, o options, s scenario) (finding, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return finding{}, err
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, sayPatience)
	defer cancel()
	began := time.Now()
	cmd := exec.CommandContext(ctx, o.binary, "serve", "--tasks", "4", "--listen", l.Addr().String())
	cmd.Dir = o.dir
	out, err := cmd.CombinedOutput()
	if err == nil {
		return finding{}, errors.New("the service has started on a port that is taken")
	}
	for line := range strings.Lines(string(out)) {
		if regexp.MustCompile(s.right).MatchString(line) {
			return finding{after: time.Since(began), line: strings.TrimSpace(strings.TrimPrefix(line, "serry: "))}, nil
		}
	}
	return finding{}, nil
}
