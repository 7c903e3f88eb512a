package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/harmless"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/launch"
)

func TestLiveLine(t *testing.T) {
	lab.Clause(t, "D-CLI-4", "TD-CLI-2")
	waiting := coord.View{Now: coord.Time(90 * time.Second), Barriers: []coord.BarrierView{{
		ID: "step-7", Since: coord.Time(60 * time.Second),
		Missing: []serry.TaskID{{Job: "worker", Index: 2}, {Job: "worker", Index: 3}},
	}}}
	for want, s := range map[string]launch.Status{
		"serry: 4 of 4 ranks run":                                                        {Tasks: 4, Running: 4},
		"serry: 2 of 4 ranks run, 1 ended, 1 failed":                                     {Tasks: 4, Running: 2, Ended: 1, Failed: 1},
		"serry: 4 of 4 ranks run, attempt 3":                                             {Tasks: 4, Running: 4, Attempt: 3, Restarts: 2},
		"serry: 4 of 4 ranks run, 2 restarts":                                            {Tasks: 4, Running: 4, Attempt: 1, Restarts: 2},
		"serry: 1 of 4 ranks run, 3 failed, ending":                                      {Tasks: 4, Running: 1, Failed: 3, Ending: true, Service: waiting},
		`serry: 4 of 4 ranks run; barrier "step-7" has waited 30s for rank 2 and 1 more`: {Tasks: 4, Running: 4, Service: waiting},
	} {
		if got := liveLine(s); got != want {
			t.Errorf("liveLine() = %q; want %q", got, want)
		}
	}
}

// No text of another host steers the terminal: in notes, in closing lines, in completions, and in JSON and YAML.
func TestTextsOfOthers(t *testing.T) {
	lab.Clause(t, "SEC-112", "SECT-26")
	const evil = "a\x1b]0;t\a\x1b[2J\rb\u009b31m\u202ec\u2066\u200f\x7f\xff"
	clean := func(name, text string) {
		t.Helper()
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r < ' ' || harmless.Steers(r) }); i >= 0 || !utf8.ValidString(text) {
			t.Errorf("%s lets %q through", name, text)
		}
	}
	var out, errs bytes.Buffer
	s := newScreen(&out, &errs)
	s.Note(launch.Note{Text: "node 1 is here: " + evil + "\nserry: all is well"})
	f := &launch.Failure{Verdict: evil, Last: []string{evil}}
	lines, err := closing(&launch.Report{Tasks: 2, First: f, Later: []*launch.Failure{f}})
	s.close(lines)
	clean("the screen", errs.String())
	explain(err, &errs)
	explain(hinted{err, evil}, &errs)
	clean("an error", errs.String())
	view := coord.View{Now: coord.Time(time.Hour), Barriers: []coord.BarrierView{{ID: evil, Missing: []serry.TaskID{{Job: evil}}}}}
	clean("the live line", oneLine(liveLine(launch.Status{Tasks: 1, Running: 1, Service: view})))
	for _, form := range []format{asJSON, asYAML} {
		out.Reset()
		p := &printer{out: &out, format: form}
		if _, err := p.object(map[string]string{"key": evil}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.line([]string{evil}); err != nil {
			t.Fatal(err)
		}
		clean(string(form), out.String())
		if form == asJSON {
			var back map[string]string
			if err := json.NewDecoder(&out).Decode(&back); err != nil || back["key"] != strings.ToValidUTF8(evil, "\ufffd") {
				t.Errorf("JSON reads back as %q, %v; want the same text", back["key"], err)
			}
		}
	}
}

// A server in plain text that other hosts can reach says so; on a loopback address and a Unix socket it does not.
func TestOpenAddress(t *testing.T) {
	lab.Clause(t, "SEC-120")
	for address, want := range map[net.Addr]bool{
		&net.TCPAddr{IP: net.IPv4zero, Port: 1}:             true,
		&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 1}:    true,
		&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}:   false,
		&net.TCPAddr{IP: net.IPv6loopback, Port: 1}:         false,
		&net.UnixAddr{Name: "/run/serry.sock", Net: "unix"}: false,
	} {
		if got := open(address); got != want {
			t.Errorf("open(%v) = %v; want %v", address, got, want)
		}
	}
}

// The closing lines name who failed first, show what it said last, and list those who followed.
func TestClosing(t *testing.T) {
	lab.Clause(t, "D-CLI-5", "D-CLI-6", "TD-CLI-3")
	first := &launch.Failure{Task: 2, Cause: launch.Cause{Signal: 9, Memory: true}, After: 3 * time.Second, Last: []string{"one", "two"}}
	var later []*launch.Failure
	for i := range 5 {
		later = append(later, &launch.Failure{Task: 3 + i, Cause: launch.Cause{Code: 1}})
	}
	long := &launch.Failure{Task: 2, Cause: launch.Cause{Code: 1}, Last: []string{strings.Repeat("x", 10<<20)}}
	var many []*launch.Failure
	for task := range 513 {
		f := &launch.Failure{Task: task, Cause: launch.Cause{Signal: 6}}
		if task > 506 {
			f.Cause = launch.Cause{Code: task - 500}
		}
		if task != 2 {
			many = append(many, f)
		}
	}
	for _, c := range []struct {
		name   string
		report launch.Report
		lines  string
		err    string
		code   int
	}{
		{"well", launch.Report{Tasks: 4, Ended: 4, Took: time.Second, Attempts: 2, Restarts: 1},
			"serry: all 4 ranks ended well after 1s, in attempt 2\n", "", 0},
		{"failed", launch.Report{Tasks: 8, First: first, Later: later, Attempts: 1},
			"serry: the last lines of rank 2, which failed first:\n    one\n    two\n" +
				"serry: after that, ranks 3-7: exit code 1\n",
			"rank 2: signal 9, killed for memory, first of 8 ranks, 3s after its start", 137},
		{"with its place", launch.Report{Tasks: 8, First: first, Attempts: 1, Aftermath: &diagnose.Aftermath{Rank: 2, At: "load_batch (train.py:18)\x1b[2J"}},
			"serry: the last lines of rank 2, which failed first:\n    one\n    two\nserry: it was at load_batch (train.py:18)?[2J\n",
			"rank 2: signal 9, killed for memory, first of 8 ranks, 3s after its start", 137},
		{"512 ranks", launch.Report{Tasks: 513, First: long, Later: many, Attempts: 1},
			"serry: the last lines of rank 2, which failed first:\n    " + strings.Repeat("x", 197) + "...\n" +
				"serry: after that, ranks 0-1,3-506: signal 6 (ABRT)\nserry: after that, rank 507: exit code 7\nserry: after that, rank 508: exit code 8\nserry: and 4 more ranks\n",
			"rank 2: exit code 1, first of 513 ranks", 1},
		{"verdict", launch.Report{Tasks: 2, First: &launch.Failure{Task: 1, Verdict: "no heartbeat for 10s"}, Attempts: 1},
			"", "rank 1: no heartbeat for 10s, first of 2 ranks", 1},
		{"interrupted, not the first host", launch.Report{Tasks: 2, Took: time.Second, Interrupted: 15},
			"", "this host was told to end by signal 15 after 1s", 143},
		{"interrupted", launch.Report{Attempts: 1, Tasks: 2, Ended: 1, Took: time.Second, Interrupted: 15},
			"", "ended by signal 15 after 1s, when 1 of 2 ranks had ended well", 143},
		{"the launcher itself", launch.Report{Tasks: 2, Err: errors.New("no port")}, "", "no port", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines, err := closing(&c.report)
			if text := errText(err); text != c.err || lines != c.lines || c.report.ExitCode() != c.code {
				t.Errorf("closing() = %q, %d, and\n%s\nwant %q, %d, and\n%s", text, c.report.ExitCode(), lines, c.err, c.code, c.lines)
			}
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Lines of tasks come whole and above the live line; what is no terminal gets neither that nor colour.
func TestScreen(t *testing.T) {
	var out, errs bytes.Buffer
	s := newScreen(&out, &errs)
	s.Line(3, launch.Stdout, []byte("hello"))
	s.Line(3, launch.Stderr, []byte("oh"))
	s.Note(launch.Note{Text: "a note"})
	s.Note(launch.Note{Text: "trouble", Warning: true})
	if out.String() != "[3] hello\n" || errs.String() != "[3] oh\nserry: a note\nserry: warning: trouble\n" {
		t.Errorf("stdout %q, stderr %q", out.String(), errs.String())
	}
	out.Reset()
	errs.Reset()
	s.colour, s.mu.live = true, "serry: alive"
	s.Line(7, launch.Stdout, []byte("hello"))
	if out.String() != "\x1b[33m[7]\x1b[0m hello\n" || !strings.HasSuffix(errs.String(), eraseLine+"serry: alive") {
		t.Errorf("stdout %q, stderr %q; want colour, and the live line drawn again", out.String(), errs.String())
	}
}
