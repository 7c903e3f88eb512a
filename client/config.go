package client

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
)

// A Dialect says what is spoken with the service.
type Dialect int

// The dialects. Auto finds out what the service speaks, once per Join.
const (
	Auto       Dialect = iota
	Serry              // serry's own
	XLA                // jaxlib from 0.10.0 on
	TensorFlow         // TensorFlow, and jaxlib up to 0.9.2
)

// String is one word.
func (d Dialect) String() string {
	switch d {
	case Auto:
		return "auto"
	case Serry:
		return "serry"
	case XLA:
		return "xla"
	case TensorFlow:
		return "tensorflow"
	}
	return fmt.Sprintf("dialect %d", int(d))
}

func (d Dialect) wire() wire.Dialect {
	switch d {
	case XLA:
		return wire.XLA
	case TensorFlow:
		return wire.TF
	}
	return wire.Serry
}

// Config says who we are and how patient we are. Address and Task must be given. What is zero has
// the default in brackets.
type Config struct {
	Address     string            // of the service, or several with commas: "host:port", "unix:/path" or another target of gRPC
	Task        serry.TaskID      // our place in the job; an empty job means "worker"
	Incarnation serry.Incarnation // of this life (drawn at random)
	Dialect     Dialect           // (Auto)
	Recoverable bool              // where each task says it for itself; most clusters say it for all

	RegisterTimeout  time.Duration // all tasks must have come by then (1 h)
	HeartbeatTimeout time.Duration // after which the service takes us for dead (100 s)
	ShutdownTimeout  time.Duration // how long Leave waits for the others (5 min)
	ErrorGrace       time.Duration // added to those two, so that the service's own error arrives (5 s)
	OutageTolerance  time.Duration // silence of the service that we survive (5 min); negative: none

	TLS       *tls.Config  // nil: plain text; package mtls makes one
	Log       *slog.Logger // nil: silent
	Transport Transport    // nil: a connection of our own to Address
}

func (c Config) withDefaults() Config {
	c.Task.Job = cmp.Or(c.Task.Job, wire.DefaultJob)
	c.RegisterTimeout = cmp.Or(c.RegisterTimeout, time.Hour)
	c.HeartbeatTimeout = cmp.Or(c.HeartbeatTimeout, 100*time.Second)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 5*time.Minute)
	c.ErrorGrace = cmp.Or(c.ErrorGrace, 5*time.Second)
	c.OutageTolerance = cmp.Or(c.OutageTolerance, 5*time.Minute)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Address == "" && c.Transport == nil:
		return errors.New("config: neither address nor transport is given")
	case c.Task.Index < 0:
		return fmt.Errorf("config: task %v has a negative number", c.Task)
	case c.Dialect < Auto || c.Dialect > TensorFlow:
		return fmt.Errorf("config: unknown dialect %d", c.Dialect)
	case c.RegisterTimeout < 0 || c.HeartbeatTimeout < 0 || c.ShutdownTimeout < 0 || c.ErrorGrace < 0:
		return errors.New("config: a timeout is negative")
	}
	return nil
}
