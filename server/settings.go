package server

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/wire"
)

// settings are the part of a Config that the meaning of a journal depends on. The same records under other
// settings would lead to another state: a barrier would time out at another moment, a task would be allowed to
// come back or not.
//
// They stand in front of every snapshot, and are true for the records after it. So serry replay needs nothing
// but the journal, and a server that is started with other settings notices (see past.changed). The names in
// JSON are part of the format of journals and do not change.
//
// Limits are among them, because what the machine keeps depends on them: at its limit of barriers, for example,
// it forgets old ones.
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

	// Planted faults change what the machine does, so a replay must have the same.
	Planted plant.Faults `json:"planted,omitempty"`
}

// settingsOf takes the settings out of a configuration. It and apply are written out, field by field: a field that
// is added to coord.Config must be looked at once, whether the meaning of a journal depends on it.
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

// apply returns c with these settings. What is not among them, such as the service incarnation, stays: a snapshot
// has its own.
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

// text is for comparing settings: equal settings have equal text. Settings hold slices, so Go cannot compare them
// with ==, and a field that is left out because it is zero is equal to one that an older server did not know.
func (s settings) text() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("server: settings: %v", err)) // there is nothing in them that has no text
	}
	return string(text)
}

// A header stands in front of the snapshot of a machine: its length as a varint, then JSON.
type header struct {
	settings

	// Notes is the number of the last note.
	Notes uint64 `json:"notes"`

	// The first failure of the epoch, and the newest notes: with the records before the snapshot they would be lost, and the
	// next leader could not say what went wrong first (D-EV-7). Their names in JSON are those of [wire.Status].
	First  *wire.NoteStatus  `json:"first_failure,omitempty"`
	Recent []wire.NoteStatus `json:"recent,omitempty"` // the oldest first, notesSaved at most

	// Wall is what the clock of the server showed when the snapshot was made; zero in those of older versions.
	Wall time.Time `json:"wall,omitzero"`
}

// append writes the header behind b. Its length comes first, so that a reader knows where the snapshot of the machine
// begins without understanding the header.
func (h header) append(b []byte) []byte {
	text, err := json.Marshal(h)
	if err != nil {
		panic(fmt.Sprintf("server: header: %v", err)) // there is nothing in it that has no text
	}
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// readHeader takes the header off a snapshot, and returns what is left: the snapshot of the machine. It may have
// been written by another version, or damaged, so nothing about it is trusted.
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
