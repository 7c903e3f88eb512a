package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// TestThreePeers runs three servers as processes of their own, kills whoever leads again and again, and
// lets members behind a relay count and meet all the while.
func TestThreePeers(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds of real time")
	}
	lab.Clause(t, "C-TERM-3", "NEW-50", "C-STOP-1", "C-STOP-4", "NEW-51", "C-LOG-3", "C-REQ-2", "A-SIDE-0")
	p := startPeers(t)
	j := joinThrough(t, p)
	for round := range 3 {
		j.work(t)
		first := make(chan error, 1)
		barrier := fmt.Sprint("over a death ", round)
		go func() { first <- j.members[0].Barrier(t.Context(), barrier, serry.BarrierOptions{}) }()
		dead := p.killLeader(t, j.leader())
		if err := j.members[1].Barrier(t.Context(), barrier, serry.BarrierOptions{}); err != nil {
			t.Fatalf("Barrier() over the death of %s = %v", dead, err)
		}
		if err := <-first; err != nil {
			t.Fatalf("Barrier() of who had arrived before the death of %s = %v", dead, err)
		}
		p.start(t, dead)
	}
	p.handOver(t, j.leader())
	j.work(t)
	p.restartAll(t)
	j.work(t)
	j.whole(t)
	p.stop(t)
	for i, m := range j.members {
		select {
		case <-m.Context().Done():
		case <-time.After(time.Minute):
			t.Errorf("member %d lives on after serry stop", i)
		}
	}
}

// Two of three servers and their folders are lost for good. What the third one has is exported without
// the others, three new servers begin from it, and the job goes on: no member is lost, no count is wrong.
func TestMajorityLostForGood(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds of real time")
	}
	lab.Clause(t, "C-LOG-3", "C-TERM-3", "C-REQ-2")
	p := startPeers(t)
	j := joinThrough(t, p)
	j.work(t)
	survivor := filepath.Join(p.dir, string(rune('a'+slices.Index(p.addresses, j.leader()))))
	command := func(args ...string) (string, error) {
		out, err := exec.Command("serry", args...).CombinedOutput()
		return string(out), err
	}
	if out, err := command("replay", survivor); err == nil || !strings.Contains(out, "in use by a server; end it first") {
		t.Errorf("replay of the folder of a server that runs: %v, %s", err, out)
	}
	for _, cmd := range p.running {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	kept := filepath.Join(p.dir, "kept")
	if out, err := command("replay", "--export", kept, survivor); err != nil {
		t.Fatalf("replay --export of the survivor: %v, %s", err, out)
	}
	if out, err := command("replay", survivor); err != nil || !strings.Contains(out, "2 connected") {
		t.Errorf("replay of the survivor: %v, %s", err, out)
	}
	p.dir, p.more = t.TempDir(), []string{"--restore", kept} // other disks
	p.launchAll(t)
	j.work(t)
	p.start(t, p.killLeader(t, j.leader())) // with --restore, which changes nothing now
	j.work(t)
	j.whole(t)
}

// joinAll joins a job of n tasks.
func joinAll(t *testing.T, address string, n int) []*client.Member {
	t.Helper()
	members, errs := make([]*client.Member, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			members[i], errs[i] = client.Join(t.Context(), client.Config{Address: address, Task: serry.TaskID{Job: "worker", Index: i}})
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("Join(%d) = %v", i, err)
		}
		t.Cleanup(func() { members[i].Close() })
	}
	return members
}

// peers are three servers.
type peers struct {
	dir       string
	list      string // for --peers
	addresses []string
	running   map[string]*exec.Cmd // by address
	builds    map[string]string    // binary of an address that does not run this build
	more      []string             // flags
}

func startPeers(t *testing.T, more ...string) *peers {
	t.Helper()
	ports := freePorts(t, 6)
	p := &peers{dir: t.TempDir(), running: make(map[string]*exec.Cmd), builds: make(map[string]string), more: more}
	var list []string
	for i, name := range []string{"a", "b", "c"} {
		p.addresses = append(p.addresses, "127.0.0.1:"+ports[i])
		list = append(list, name+"=127.0.0.1:"+ports[3+i])
	}
	p.list = strings.Join(list, ",")
	p.launchAll(t)
	return p
}

// launchAll starts all servers at once: each waits for a majority.
func (p *peers) launchAll(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	cmds := make([]*exec.Cmd, len(p.addresses))
	for i, address := range p.addresses {
		all.Go(func() { cmds[i] = p.launch(t, address) })
	}
	all.Wait()
	for i, address := range p.addresses {
		if p.running[address] = cmds[i]; cmds[i] == nil {
			t.FailNow()
		}
	}
}

// start starts a server again.
func (p *peers) start(t *testing.T, address string) {
	t.Helper()
	if p.running[address] = p.launch(t, address); p.running[address] == nil {
		t.FailNow()
	}
}

// launch starts the server of an address and waits for its first line.
func (p *peers) launch(t *testing.T, address string) *exec.Cmd {
	name := ""
	for i, a := range p.addresses {
		if a == address {
			name = string(rune('a' + i))
		}
	}
	path, err := exec.LookPath(cmp.Or(p.builds[address], "serry"))
	if err != nil {
		t.Error(err)
		return nil
	}
	args := append([]string{"serve", "--tasks", "2", "--listen", address,
		"--peers", p.list, "--name", name, "--data-dir", filepath.Join(p.dir, name)}, p.more...)
	cmd := exec.Command(path, args...)
	log, err := os.OpenFile(filepath.Join(p.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("log of %s:\n%s", name, text)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "serving 2 tasks") {
		t.Errorf("first line of %s = %q, %v", name, line, err)
		return nil
	}
	return cmd
}

// killLeader kills the server that a relay is connected to.
func (p *peers) killLeader(t *testing.T, leader string) (dead string) {
	t.Helper()
	cmd := p.running[leader]
	if cmd == nil {
		t.Fatalf("the relay is connected to %q, which is none of %v", leader, p.addresses)
	}
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	t.Logf("killed %s after %v", leader, time.Since(began).Round(time.Millisecond))
	return leader
}

// handOver lets another server lead, by the command and then by the signal.
func (p *peers) handOver(t *testing.T, leader string) {
	t.Helper()
	path, err := exec.LookPath("serry")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "handover", "--address", leader).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "leads after") {
		t.Fatalf("serry handover = %q, %v; want another term to lead", out, err)
	}
	// It is not known which of the two others leads now: both end, one after the other, but the first
	// comes back before that.
	for _, address := range p.addresses {
		if address == leader {
			continue
		}
		if err := p.running[address].Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := p.running[address].Wait(); err != nil {
			t.Fatalf("server %s at SIGTERM = %v; want it to end well", address, err)
		}
		p.start(t, address)
	}
}

// restartAll ends all servers at once by the signal, and starts them again.
func (p *peers) restartAll(t *testing.T) {
	t.Helper()
	for _, address := range p.addresses {
		if err := p.running[address].Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for _, address := range p.addresses {
		if err := p.running[address].Wait(); err != nil {
			t.Fatalf("server %s at SIGTERM of all = %v; want it to end well", address, err)
		}
	}
	p.launchAll(t)
}

// stop ends the job by the command.
func (p *peers) stop(t *testing.T) {
	t.Helper()
	path, err := exec.LookPath("serry")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "stop", "--address", p.addresses[0]).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "waits for the next one") {
		t.Fatalf("serry stop = %q, %v; want the job to end and the servers to stay", out, err)
	}
}

// freePorts finds ports that nobody has now.
func freePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports
}

// TestPeersAreShown asks which server leads, by any of them, by all of them and by a folder, while servers end.
func TestPeersAreShown(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds of real time")
	}
	lab.Clause(t, "C-TERM-4", "D-WEB-4")
	p := startPeers(t, "--web", "127.0.0.1:0")
	all := strings.Join(p.addresses, ",")
	wait := func(args []string, want ...string) string {
		t.Helper()
		for deadline := time.Now().Add(untilPatience); ; {
			text, _ := exec.Command("serry", args...).CombinedOutput() // a failure may be what is waited for
			if !slices.ContainsFunc(want, func(w string) bool { return !regexp.MustCompile("(?m)" + w).Match(text) }) {
				return string(text)
			}
			if time.Now().After(deadline) {
				t.Fatalf("serry %v does not match %q:\n%s", args, want, text)
			}
		}
	}
	rows := []string{`^a .* (leads|stands by) +\d+ +0$`, `^b .* (leads|stands by) +\d+ +0$`, `^c .* (leads|stands by) +\d+ +0$`, ` leads +\d+ +0$`}
	wait([]string{"peers", "--address", p.addresses[2]}, rows...)
	wait([]string{"peers", "--address", all}, rows...)
	wait([]string{"peers", "--address", p.addresses[1], "-o", "json"}, `(?s)("page": "http://127\.0\.0\.1:\d+/".*){3}`)
	shown := wait([]string{"peers", "--data-dir", filepath.Join(p.dir, "b")}, rows...)
	leader := regexp.MustCompile(`(?m)^\S+ +(\S+) .* leads `).FindStringSubmatch(shown)[1]
	wait([]string{"status", "--address", all}, `^leader +`+leader+`, term \d+$`)
	wait([]string{"status", "--address", leader, "-o", "json"}, `"leader": "`+leader+`"`, `"term": \d+`)

	dead := p.killLeader(t, leader)
	wait([]string{"peers", "--address", all}, `^. +`+dead+` .* down +- +- +refused$`, ` leads +\d+ +0$`)
	wait([]string{"status", "--address", all}, `^leader +127`) // though the first of the list may be dead
	for address, cmd := range p.running {
		if address == dead {
			continue
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("server %s at SIGTERM = %v; want it to end well", address, err)
		}
	}
	wait([]string{"peers", "--address", all}, `^serry: error: no server leads$`, `^serry: hint: start those that are down`)
	for i, address := range p.addresses {
		text, err := os.ReadFile(filepath.Join(p.dir, string(rune('a'+i))+".log"))
		if err != nil || address != dead && strings.Contains(string(text), "embedded etcd failed") {
			t.Errorf("log of a server that ended well: %v\n%s", err, text)
		}
	}
}

// TestPeersWait starts one server of three, and then one whose folder is lost.
func TestPeersWait(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds of real time")
	}
	ports := freePorts(t, 6)
	// The port of b is free for seconds. On an address that no other process uses it stays so.
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	list := fmt.Sprintf("a=%s:%s,b=%s:%s", host, ports[3], host, ports[4])
	dir := t.TempDir()
	server := func(name, port, folder string) (*exec.Cmd, *bufio.Scanner) {
		cmd := exec.Command("serry", "serve", "--tasks", "2", "--listen", host+":"+port, "--peers", list, "--name", name, "--data-dir", filepath.Join(dir, folder))
		pipe, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		})
		return cmd, bufio.NewScanner(pipe)
	}
	hear := func(lines *bufio.Scanner, want string) {
		t.Helper()
		said := ""
		for lines.Scan() {
			if said += lines.Text() + "\n"; strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("no line with %q in\n%s", want, said)
	}
	_, a := server("a", ports[0], "a")
	hear(a, `msg="waiting for a majority of the peers" of=2 missing="b at `+host+`:`+ports[4]+` (connect: connection refused)"`)
	b, lines := server("b", ports[1], "b")
	hear(lines, " term=") // it leads or stands by
	if err := errors.Join(b.Process.Kill(), os.RemoveAll(filepath.Join(dir, "b"))); err != nil {
		t.Fatal(err)
	}
	_ = b.Wait() // it was killed
	_, lines = server("b", ports[1], "lost")
	hear(lines, "serry: error: member b: the other members know this one, and its folder is empty")
	hear(lines, "serry: hint: the others know this server, and its folder is empty. If the folder was lost: serry peers replace "+host+":"+ports[4])
}
