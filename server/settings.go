package server

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/plant"
)

// settings are what of a Config the meaning of a journal depends on. They stand in front of every
// snapshot and are true for the records after it, so that a history can be replayed by somebody who
// knows nothing else of it.
type settings struct {
	Jobs             []coord.Job   `json:"jobs"`
	RegisterBarrier  bool          `json:"register_barrier,omitempty"`
	RegisterTimeout  time.Duration `json:"register_timeout,omitempty"`
	HeartbeatTimeout time.Duration `json:"heartbeat_timeout,omitempty"`
	ShutdownTimeout  time.Duration `json:"shutdown_timeout,omitempty"`
	Recoverable      bool          `json:"recoverable,omitempty"`
	RecoverableJobs  []string      `json:"recoverable_jobs,omitempty"`
	AllowReconnect   bool          `json:"allow_reconnect,omitempty"`
	ExcludeUnsynced  bool          `json:"exclude_unsynced,omitempty"`
	ErrorsByBeat     bool          `json:"errors_by_beat,omitempty"`
	Limits           coord.Limits  `json:"limits"`
	Planted          plant.Faults  `json:"planted,omitempty"`
}

func settingsOf(c coord.Config) settings {
	return settings{
		Jobs:             c.Jobs,
		RegisterBarrier:  c.RegisterBarrier,
		RegisterTimeout:  c.RegisterTimeout,
		HeartbeatTimeout: c.HeartbeatTimeout,
		ShutdownTimeout:  c.ShutdownTimeout,
		Recoverable:      c.Recoverable,
		RecoverableJobs:  c.RecoverableJobs,
		AllowReconnect:   c.AllowReconnect,
		ExcludeUnsynced:  c.ExcludeUnsynced,
		ErrorsByBeat:     c.ErrorsByBeat,
		Limits:           c.Limits,
		Planted:          c.Planted,
	}
}

// apply returns c with these settings.
func (s settings) apply(c coord.Config) coord.Config {
	c.Jobs = s.Jobs
	c.RegisterBarrier = s.RegisterBarrier
	c.RegisterTimeout = s.RegisterTimeout
	c.HeartbeatTimeout = s.HeartbeatTimeout
	c.ShutdownTimeout = s.ShutdownTimeout
	c.Recoverable = s.Recoverable
	c.RecoverableJobs = s.RecoverableJobs
	c.AllowReconnect = s.AllowReconnect
	c.ExcludeUnsynced = s.ExcludeUnsynced
	c.ErrorsByBeat = s.ErrorsByBeat
	c.Limits = s.Limits
	c.Planted = s.Planted
	return c
}

// text is how settings are compared.
func (s settings) text() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("server: settings: %v", err)) // there is nothing in them that has no text
	}
	return string(text)
}

// A header stands in front of the snapshot of a machine.
type header struct {
	settings
	Notes uint64 `json:"notes"` // number of the last one
}

func (h header) append(b []byte) []byte {
	text, err := json.Marshal(h)
	if err != nil {
		panic(fmt.Sprintf("server: header: %v", err)) // there is nothing in it that has no text
	}
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// readHeader takes the header off a snapshot.
func readHeader(b []byte) (h header, machine []byte, err error) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return h, nil, errors.New("snapshot ends too early")
	}
	if err := json.Unmarshal(b[n:n+int(size)], &h); err != nil {
		return h, nil, fmt.Errorf("header of the snapshot: %w", err)
	}
	return h, b[n+int(size):], nil
}
