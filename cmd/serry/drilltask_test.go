package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/launch"
)

// The command that drills run as their tasks, and what it finds in its environment beside what serry run
// tells every task.
const (
	drillCommand = "drill-task"
	drillSocket  = "DRILL_SOCKET"  // where the test listens
	drillSeed    = "DRILL_SEED"    // of the schedule
	drillJoins   = "DRILL_JOINS"   // the task joins the service
	drillAddress = "DRILL_ADDRESS" // of a relay to join by, instead of what serry run says
	drillDaemon  = "DRILL_DAEMON"  // the process is one that a task left behind
)

// A word is what a process of a drill tells the test, a line each. The end of the connection tells the rest.
type word struct {
	Task, Attempt, Life int
	Pid                 int
	Since               uint64 // when the process was started, in ticks since the boot
	Run                 string // of its launcher, which it shares with all on its host
	Parent              int    // its launcher, where it is no daemon
	Daemon              bool   `json:",omitempty"`
	Lines               int    `json:",omitempty"` // it has written so many
	Ends                bool   `json:",omitempty"` // it ends now, with Code
	Code                int    `json:",omitempty"`
}

// Exit codes of drill tasks that mean something.
const (
	codeLostMember = 40 // the service or another task has failed
	codeNoTest     = 41 // the test is gone
)

// An actor is a process of a drill.
type actor struct {
	conn net.Conn
	self word
	dice *rand.Rand
}

// drillTask is the main function of a task of a drill: what it does is drawn from the seed and its place.
func drillTask() {
	a := newActor()
	if a.self.Daemon {
		a.wait(time.Minute, a.dice.IntN(2) == 0)
		return
	}
	if a.dice.IntN(6) == 0 {
		a.leaveBehind(a.dice.IntN(2) == 0)
	}
	runs := time.Duration(200+a.dice.IntN(1000)) * time.Millisecond
	code := 0
	switch k := a.dice.IntN(100); {
	case k < 12:
		code = 1 + a.dice.IntN(30)
	case k < 18:
		code = -int(syscall.SIGKILL)
	}
	temper := a.dice.IntN(4)
	told := make(chan os.Signal, 1)
	if temper >= 2 {
		signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	}
	a.write([]int{3, 300, 20_000}[a.dice.IntN(3)])
	lost, leave := a.join()
	end := time.After(runs)
	for {
		select {
		case <-end:
			if code == 0 {
				leave()
			}
			a.end(code)
		case <-lost:
			a.end(codeLostMember)
		case <-told:
			if temper == 2 { // it saves
				<-time.After(time.Duration(a.dice.IntN(300)) * time.Millisecond)
				a.end(0)
			}
		}
	}
}

// newActor introduces this process to the test.
func newActor() *actor {
	c, err := net.Dial("unix", os.Getenv(drillSocket))
	if err != nil {
		os.Exit(codeNoTest)
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(os.Getenv(name))
		return n
	}
	a := &actor{conn: c, self: word{
		Task: number(launch.EnvTask), Attempt: number(launch.EnvAttempt), Life: number(launch.EnvLife),
		Pid: os.Getpid(), Run: os.Getenv(launch.EnvRun), Parent: os.Getppid(), Daemon: os.Getenv(drillDaemon) != "",
	}}
	a.self.Since, _ = startOf(os.Getpid())
	seed, _ := strconv.ParseUint(os.Getenv(drillSeed), 10, 64)
	a.dice = rand.New(rand.NewPCG(seed, uint64(a.self.Task)<<40|uint64(a.self.Attempt)<<20|uint64(a.self.Life)))
	a.say(a.self)
	return a
}

func (a *actor) say(w word) {
	b, _ := json.Marshal(w)
	if _, err := a.conn.Write(append(b, '\n')); err != nil {
		os.Exit(codeNoTest)
	}
}

// write writes numbered lines to stdout and says how many.
func (a *actor) write(lines int) {
	for i := range lines {
		fmt.Printf("line %d of a task that has much to say\n", i)
	}
	w := a.self
	w.Lines = lines
	a.say(w)
}

// leaveBehind starts a process that outlives this one, in its group or out of it.
func (a *actor) leaveBehind(inGroup bool) {
	cmd := exec.Command(drillCommand)
	cmd.Env = append(os.Environ(), drillDaemon+"=1")
	if !inGroup {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	_ = cmd.Start() // it says so itself
}

// wait is all that a process does which a task left behind.
func (a *actor) wait(most time.Duration, deaf bool) {
	if deaf {
		signal.Ignore(syscall.SIGTERM)
	}
	<-time.After(most)
}

// join joins the service where the schedule says so. lost is closed when the membership ends before leave.
func (a *actor) join() (lost <-chan struct{}, leave func()) {
	if os.Getenv(drillJoins) == "" {
		return nil, func() {}
	}
	cfg, _, err := client.ConfigFromEnv()
	if at := os.Getenv(drillAddress); at != "" {
		cfg.Address = at
	}
	var m *client.Member
	if err == nil {
		m, err = client.Join(context.Background(), cfg)
	}
	if err != nil {
		a.end(codeLostMember)
	}
	return m.Context().Done(), func() {
		if m.Leave(context.Background()) != nil {
			a.end(codeLostMember)
		}
	}
}

// end says how this process ends, and ends it. A negative code is a signal.
func (a *actor) end(code int) {
	w := a.self
	w.Ends, w.Code = true, code
	a.say(w)
	if code < 0 {
		_ = syscall.Kill(os.Getpid(), syscall.Signal(-code))
		select {}
	}
	os.Exit(code)
}

// startOf is when a process was started, in ticks since the boot; false: it has ended, or does not exist.
func startOf(pid int) (ticks uint64, alive bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const state, start = 0, 19
	if len(fields) <= start {
		return 0, false
	}
	ticks, err = strconv.ParseUint(fields[start], 10, 64)
	return ticks, err == nil && fields[state] != "Z" && fields[state] != "X"
}
