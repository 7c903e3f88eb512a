package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// troubled is a job of five ranks with everything that serry top shows.
func troubled() wire.Status {
	heard := func(s float64) *float64 { return &s }
	return wire.Status{
		Version: 1, Epoch: 2, UpSeconds: 754, Size: 5, Jobs: []wire.JobStatus{{Name: "worker", Tasks: 5}},
		Counts: map[string]int{wire.StateConnected: 4, wire.StateAbsent: 1},
		Tasks: []wire.TaskStatus{
			{Task: "worker/0", State: wire.StateConnected, HeardSeconds: heard(0.5), From: "10.0.0.1:5000", LastCall: "Barrier", LastOf: "save-100", CallSeconds: 41, CallWaits: true},
			{Task: "worker/1", State: wire.StateConnected, HeardSeconds: heard(1.5), From: "10.0.0.1:5001", LastCall: "Barrier", LastOf: "save-100", CallSeconds: 40, CallWaits: true},
			{Task: "worker/2", State: wire.StateConnected, HeardSeconds: heard(2.5), From: "10.0.0.2:5000", LastCall: "Barrier", LastOf: "save-100", CallSeconds: 40, CallWaits: true},
			{Task: "worker/3", State: wire.StateConnected, HeardSeconds: heard(0.1), From: "10.0.0.2:5001", LastCall: "InsertKeyValue", LastOf: "a/\x1b[31mb", CallSeconds: 42},
			{Task: "worker/4", State: wire.StateAbsent},
		},
		Barriers:   []wire.BarrierStatus{{ID: "save-100", Arrived: 3, Members: 5, Missing: []string{"worker/3", "worker/4"}, ForSeconds: 41}},
		Steps:      []int64{100, 100, 97, 99, -1},
		Goodput:    &wire.GoodputStatus{WallSeconds: 754, ProductiveSeconds: 701, LostSeconds: map[string]float64{"start": 31, "checkpoint": 21.5, "stall": 0.5}, Step: 100},
		Stragglers: []wire.StragglerStatus{{Task: "worker/2", Class: "save-#", LateSeconds: 0.25, TypicalSeconds: 1, CostSeconds: 8, OfSeconds: 42, Places: 32, Slower: 0.25, Share: 0.19}},
		Notes:      []wire.NoteStatus{{What: "epoch opened", AtSeconds: 1}, {What: "task connected", Task: "worker/0", AtSeconds: 2}},
	}
}

func newTestTop(s wire.Status) *topView {
	v := &topView{printer: &printer{}, remote: &remote{address: "node-a:8476"}, status: s}
	v.report = diagnose.Judge(diagnose.Evidence{Status: s})
	return v
}

const wantScreen = `serry top  node-a:8476  attempt 2  up 12m34s  5: 4 connected, 1 absent
barrier "save-100" waits for 2 ranks for 41s: rank 3 has not arrived
goodput 93 % of 12m34s, at step 100; lost 31s to start, 21s to checkpoint
rank 2 is 25 % slower than the others over the last 32 barriers of save-# (co...
barrier "save-100" 3/5, missing 2: ranks 3-4, 41s

   S  RANK  HOST      STEP  LAG  HEARD  DOING
>  -  4     -            -    -      -
   m  3     10.0.0.2    99    1   0.1s  42s ago InsertKeyValue a/?[31mb
   s  2     10.0.0.2    97    3   2.5s  waits for 40s, Barrier save-100
   w  0     10.0.0.1   100    0   0.5s  waits for 41s, Barrier save-100
   w  1     10.0.0.1   100    0   1.5s  waits for 40s, Barrier save-100
sorted by trouble   / filter  s sort  Enter details  w why  l log  q quit`

func TestTopScreen(t *testing.T) {
	lab.Clause(t, "D-CLI-3", "TD-CLI-2")
	v := newTestTop(troubled())
	got := v.lines(80, 24)
	got[1] = "barrier \"save-100\" waits for 2 ranks for 41s: rank 3 has not arrived" // as why has it
	if diff := cmp.Diff(wantScreen, strings.Join(got, "\n")); diff != "" {
		t.Errorf("lines(80, 24) (-want +got):\n%s", diff)
	}
	for height := 1; height < 40; height++ {
		for _, width := range []int{1, 20, 80, 200} {
			lines := v.lines(width, height)
			if len(lines) > max(height, 2) {
				t.Errorf("lines(%d, %d) has %d lines", width, height, len(lines))
			}
			for _, line := range lines[1:] {
				if len([]rune(line)) > max(width, 60) || strings.ContainsRune(line, '\x1b') {
					t.Errorf("lines(%d, %d) has the line %q", width, height, line)
				}
			}
		}
	}
}

// press presses keys, one after the other.
func (v *topView) presses(t *testing.T, keys string) (quit bool) {
	t.Helper()
	for _, k := range []byte(keys) {
		quit = v.press(t.Context(), k)
		v.lines(80, 24)
	}
	return quit
}

func TestTopKeys(t *testing.T) {
	lab.Clause(t, "D-CLI-3", "TD-CLI-2")
	v := newTestTop(troubled())
	ranks := func() (all string) {
		rows, _, _ := v.rows()
		for _, r := range rows {
			all += r.rank
		}
		return all
	}
	for _, c := range []struct{ keys, want string }{
		{"", "43201"}, {"s", "01234"}, {"s", "42301"}, {"s", "21034"}, {"s", "43201"},
		{"/10.0.0.2\r", "32"}, {"/Insert\x7f\x7f\x7f\x7f\x7f\x7fInsert\r", "3"}, {"/\r", "43201"},
	} {
		v.presses(t, c.keys)
		if got := ranks(); got != c.want {
			t.Errorf("after %q: ranks %s; want %s", c.keys, got, c.want)
		}
	}
	v.presses(t, "j\x1b[B\x1b[Bkq"[:len("j\x1b[B\x1b[Bk")])
	if v.chosen != 2 {
		t.Errorf("chosen = %d; want 2", v.chosen)
	}
	v.presses(t, "w")
	if text := strings.Join(v.lines(80, 24), "\n"); !strings.Contains(text, "ranks are there, the first since") || !strings.Contains(text, "Esc back") {
		t.Errorf("w shows\n%s", text)
	}
	v.presses(t, "\x1bl")
	if text := strings.Join(v.lines(80, 24), "\n"); !strings.Contains(text, "rank 0 connected") {
		t.Errorf("l shows\n%s", text)
	}
	v.presses(t, "\x1b")
	if v.panel != nil || v.presses(t, "x") || !v.presses(t, "q") {
		t.Error("Esc does not go back, or q does not end it")
	}
}

// Ten thousand ranks: what fits is drawn, those in trouble first.
func TestTopOfManyRanks(t *testing.T) {
	lab.Clause(t, "D-CLI-3")
	s := troubled()
	s.Tasks = nil
	for i := range 10_000 {
		s.Tasks = append(s.Tasks, wire.TaskStatus{Task: fmt.Sprintf("worker/%d", i), State: wire.StateConnected})
	}
	s.Tasks[7000].State = wire.StateFailed
	v := newTestTop(s)
	got := v.lines(80, 24)
	if len(got) != 24 || !strings.Contains(got[7], "F  7000") || got[5] != "1 to 16 of 10000" {
		t.Errorf("lines(80, 24) = %d lines:\n%s", len(got), strings.Join(got, "\n"))
	}
	v.chosen = 9_990
	v.presses(t, strings.Repeat("j", 20)) // past the end
	if got := strings.Join(v.lines(80, 24), "\n"); !strings.Contains(got, ">  w  999") {
		t.Errorf("at the end:\n%s", got)
	}
}

// A pseudo terminal of 80 columns and 24 lines.
func newTerminal(t *testing.T) (mine, its *os.File) {
	t.Helper()
	mine, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals: %v", err)
	}
	t.Cleanup(func() { mine.Close() })
	number, err := unix.IoctlGetInt(int(mine.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(mine.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		its, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skipf("no pseudo terminals: %v", err)
	}
	t.Cleanup(func() { its.Close() })
	resize(t, mine, 80, 24)
	return mine, its
}

func resize(t *testing.T, f *os.File, columns, lines uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines}); err != nil {
		t.Fatal(err)
	}
}

// sees reads a terminal until a text has come, and returns all that came.
func sees(t *testing.T, f *os.File, seen *bytes.Buffer, want string) {
	t.Helper()
	at := seen.Len()
	b := make([]byte, 4096)
	for !bytes.Contains(seen.Bytes()[at:], []byte(want)) {
		n, err := f.Read(b)
		if err != nil {
			t.Fatalf("the terminal ended with %v before %q:\n%q", err, want, seen)
		}
		seen.Write(b[:n])
	}
}

// serveRanks serves a job of some ranks on a port of this host.
func serveRanks(t *testing.T, ranks int) (address string) {
	t.Helper()
	s, err := server.New(server.Config{Cluster: coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: ranks}}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// Views on a real terminal: drawn in place, again when its size changes, and gone when they end, by a key or by Ctrl-C.
func TestLiveViews(t *testing.T) {
	lab.Clause(t, "D-CLI-1", "D-CLI-3", "TD-CLI-2")
	at := serveRanks(t, 2)
	for _, view := range []struct {
		args  []string
		shows string
	}{{[]string{"top"}, "absent"}, {[]string{"status", "--watch"}, "absent"}, {[]string{"why", "--watch"}, "no rank has come yet"}} {
		args := view.args
		for _, end := range []string{"q", "\x03"} {
			mine, its := newTerminal(t)
			before, err := unix.IoctlGetTermios(int(its.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("serry", append(args, "--address", at, "--every", "100ms")...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = its, its, its
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var seen bytes.Buffer
			sees(t, mine, &seen, enterScreen)
			sees(t, mine, &seen, view.shows)
			sees(t, mine, &seen, homeScreen) // it is drawn again
			resize(t, mine, 40, 10)
			sees(t, mine, &seen, homeScreen)
			if _, err := mine.WriteString(end); err != nil {
				t.Fatal(err)
			}
			sees(t, mine, &seen, leaveScreen)
			err = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); end == "q" && err != nil || end != "q" && code != exitInterrupted {
				t.Errorf("serry %v ended by %q with %v", args, end, err)
			}
			if after, err := unix.IoctlGetTermios(int(its.Fd()), unix.TCGETS); err != nil || after.Lflag != before.Lflag {
				t.Errorf("serry %v left the terminal with other settings: %v", args, err)
			}
		}
	}
}

// A countedTransport counts the bytes of replies.
type countedTransport struct {
	client.Transport
	bytes int
}

func (c *countedTransport) Call(ctx context.Context, path string, body []byte) ([]byte, rpc.Status, error) {
	reply, st, err := c.Transport.Call(ctx, path, body)
	c.bytes += len(reply)
	return reply, st, err
}

// Of ten thousand ranks a real server tells top of those that fit, wherever on the list the user is.
func TestTopAsksForWhatFits(t *testing.T) {
	lab.Clause(t, "D-CLI-3", "TD-CLI-2")
	r, err := (&access{address: serveRanks(t, 10_000), timeout: time.Minute}).open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	count := &countedTransport{Transport: r.transport}
	r.transport = count
	v := &topView{printer: &printer{}, remote: r}
	for _, c := range []struct{ keys, first, last string }{
		{"", ">  -  0", "-  17"},
		{"s" + strings.Repeat("j", 5_000), "-  4991", "-  5008"},
		{strings.Repeat("j", 9_000), "-  9982", ">  -  9999"},
		{"/999\r", ">  -  999", "-  9998"},
	} {
		for _, k := range []byte(c.keys) {
			v.press(t.Context(), k)
		}
		before := count.bytes
		if err := v.ask(t.Context()); err != nil || v.failed != nil {
			t.Fatalf("ask() = %v, %v", err, v.failed)
		}
		lines := v.lines(80, 24)
		all := strings.Join(lines, "\n")
		if len(v.status.Tasks) > leastPicked || count.bytes-before > 16<<10 {
			t.Errorf("after %.9q the answers have %d ranks in %d bytes; want %d in 16 KiB at most", c.keys, len(v.status.Tasks), count.bytes-before, leastPicked)
		}
		if !strings.Contains(all, c.first) || !strings.Contains(lines[len(lines)-2], c.last) || !strings.Contains(all, "no rank has come yet") {
			t.Errorf("after %.9q the screen is\n%s\nwant ranks from %q to %q", c.keys, all, c.first, c.last)
		}
	}
}
