package launch

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// A text is a pipe that has been written to and closed.
type text struct{ io.Reader }

func (text) Close() error                    { return nil }
func (text) SetReadDeadline(time.Time) error { return nil }

func TestOutput(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"lines", "a\nb\n\nc\n", []string{"a", "b", "", "c"}},
		{"no end of the last line", "a\nb", []string{"a", "b"}},
		{"carriage returns", "a\r\n 10%\r 20%\r100%\nb\r", []string{"a", "100%", "b"}},
		{"nothing", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			f := newFeed(s)
			o := newOutput(3, f)
			if !o.copy(Stderr, text{iotest.OneByteReader(strings.NewReader(c.text))}) {
				t.Error("copy() = false; want true: the stream has ended")
			}
			f.close(nil)
			var got []string
			for _, line := range s.mu.lines {
				got = append(got, strings.TrimPrefix(line, "3 2 "))
			}
			if !slices.Equal(got, c.want) || !slices.Equal(o.last(false), c.want) {
				t.Errorf("%q: shown %q, last %q; want %q", c.text, got, o.last(false), c.want)
			}
		})
	}
}

// Of what a task said only the last lines are kept, and the beginning of each.
func TestOutputKeepsTheLastLines(t *testing.T) {
	var said strings.Builder
	for i := range 100 {
		fmt.Fprintf(&said, "%d %s\n", i, strings.Repeat("x", 2*tailLineSize))
	}
	f := newFeed(noDisplay{})
	defer f.close(nil)
	o := newOutput(0, f)
	o.copy(Stdout, text{strings.NewReader(said.String())})
	last := o.last(false)
	if len(last) != tailLines || !strings.HasPrefix(last[0], "80 ") || !strings.HasPrefix(last[tailLines-1], "99 ") {
		t.Errorf("%d lines kept; want the last %d", len(last), tailLines)
	}
	for _, line := range last {
		if len(line) > tailLineSize {
			t.Errorf("%d bytes of a line kept; want %d", len(line), tailLineSize)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Config{Command: []string{"true"}, Tasks: 1}
	for name, change := range map[string]func(*Config){
		"no command":          func(c *Config) { c.Command = nil },
		"no tasks":            func(c *Config) { c.Tasks = 0 },
		"too many tasks":      func(c *Config) { c.Tasks = 1 << 30 },
		"unknown policy":      func(c *Config) { c.Restart = "sometimes" },
		"negative restarts":   func(c *Config) { c.MaxRestarts = -1 },
		"no coordinator":      func(c *Config) { c.Nodes = 2 },
		"bad coordinator":     func(c *Config) { c.Nodes, c.Coordinator = 2, "here" },
		"port 0":              func(c *Config) { c.Nodes, c.Coordinator = 2, "here:0" },
		"node beyond the job": func(c *Config) { c.Node = 1 },
		"negative nodes":      func(c *Config) { c.Nodes = -1 },
		"spares, no address":  func(c *Config) { c.Spares = 1 },
		"too many in all":     func(c *Config) { c.Nodes, c.Tasks, c.Coordinator = 1000, 1<<20, "h:1" },
	} {
		bad := good
		if change(&bad); bad.Validate() == nil {
			t.Errorf("%s: Validate() = nil; want an error", name)
		}
	}
	if err := good.Validate(); err != nil {
		t.Errorf("Validate() = %v; want nil", err)
	}
}
