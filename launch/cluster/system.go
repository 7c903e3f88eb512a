package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// A System is the part of the world that detection looks at. The zero value is this machine.
type System struct {
	Env    func(name string) string                                 // os.Getenv
	Root   string                                                   // where /proc, /sys and /var are
	Lookup func(ctx context.Context, host string) ([]string, error) // addresses of a name
	Pause  time.Duration                                            // between tries
}

func (s System) withDefaults() System {
	if s.Env == nil {
		s.Env = os.Getenv
	}
	if s.Root == "" {
		s.Root = "/"
	}
	if s.Lookup == nil {
		s.Lookup = net.DefaultResolver.LookupHost
	}
	if s.Pause == 0 {
		s.Pause = 500 * time.Millisecond
	}
	return s
}

func (s System) env(name string) string {
	if s.Env == nil {
		return os.Getenv(name)
	}
	return s.Env(name)
}

func (s System) path(name string) string { return filepath.Join(s.Root, name) }

// number reads a variable that has a number, if it is there.
func (s System) number(name string) (Value[int], error) {
	if text := s.env(name); text != "" {
		return parseNumber(name, text)
	}
	return Value[int]{}, nil
}

// parseNumber reads the text of a variable.
func parseNumber(name, text string) (Value[int], error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return Value[int]{}, fmt.Errorf("%s is %q: want a number", name, text)
	}
	return Value[int]{n, name}, nil
}

// text reads a variable, if it is there.
func (s System) text(name string) Value[string] {
	if text := s.env(name); text != "" {
		return Value[string]{text, name}
	}
	return Value[string]{}
}

// needed is number for a variable that must be there.
func (s System) needed(name string) (Value[int], error) {
	v, err := s.number(name)
	if err == nil && !v.Known() {
		err = fmt.Errorf("%s is not set", name)
	}
	return v, err
}

// missing is the first of some variables that is not set, or empty.
func (s System) missing(names ...string) string {
	for _, name := range names {
		if s.env(name) == "" {
			return name
		}
	}
	return ""
}
