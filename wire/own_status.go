package wire

import (
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// StatusVersion is the version of [Status]. It changes when a field changes its meaning or goes.
const StatusVersion = 1

// A Status is a picture of the service for people and their scripts, as JSON. Times are seconds of
// service time, ages count from now.
type Status struct {
	Version    int             `json:"version"`
	Epoch      int             `json:"epoch"`
	Service    uint64          `json:"service,string"`
	UpSeconds  float64         `json:"up_seconds"`
	Stopped    bool            `json:"stopped"`
	Failure    string          `json:"failure,omitempty"`
	Tasks      []TaskStatus    `json:"tasks"`
	Barriers   []BarrierStatus `json:"barriers"`
	Keys       int             `json:"keys"`
	StoreBytes int64           `json:"store_bytes"`
	Waiting    int             `json:"waiting_calls"`
}

// A TaskStatus is a task in a [Status].
type TaskStatus struct {
	Task        string  `json:"task"`
	State       string  `json:"state"` // connected, disconnected, failed, registering, left
	Incarnation uint64  `json:"incarnation,string,omitempty"`
	ForSeconds  float64 `json:"for_seconds"`
	Error       string  `json:"error,omitempty"`
}

// A BarrierStatus is an open barrier in a [Status].
type BarrierStatus struct {
	ID         string   `json:"id"`
	Counter    int64    `json:"counter"`
	Arrived    int      `json:"arrived"`
	Members    int      `json:"members"`
	First      string   `json:"first,omitempty"`
	Missing    []string `json:"missing"` // at most 64 of them
	ForSeconds float64  `json:"for_seconds"`
}

// NewStatus draws a status from a machine's view.
func NewStatus(v coord.View) Status {
	s := Status{
		Version: StatusVersion, Epoch: v.Epoch, Service: uint64(v.Service), UpSeconds: seconds(v.Now), Stopped: v.Stopped,
		Tasks: []TaskStatus{}, Barriers: []BarrierStatus{}, Keys: v.Keys, StoreBytes: v.StoreBytes, Waiting: v.Waiters,
	}
	if v.Failure != nil {
		s.Failure = v.Failure.Error()
	}
	for _, t := range v.Tasks {
		ts := TaskStatus{Task: t.Task.String(), State: t.State.String(), Incarnation: uint64(t.Incarnation), ForSeconds: seconds(v.Now - t.Since)}
		switch {
		case t.Registering:
			ts.State = "registering"
		case t.State == serry.Disconnected && t.Incarnation != 0:
			ts.State = "left"
		}
		if t.Err != nil {
			ts.Error = t.Err.Error()
		}
		s.Tasks = append(s.Tasks, ts)
	}
	for _, b := range v.Barriers {
		bs := BarrierStatus{
			ID: b.ID, Counter: b.Counter, Arrived: b.Arrived, Members: b.Members, Missing: []string{}, ForSeconds: seconds(v.Now - b.Since),
		}
		if !b.First.IsZero() {
			bs.First = b.First.String()
		}
		for _, t := range b.Missing[:min(len(b.Missing), 64)] {
			bs.Missing = append(bs.Missing, t.String())
		}
		s.Barriers = append(s.Barriers, bs)
	}
	return s
}

func seconds(t coord.Time) float64 { return time.Duration(t).Seconds() }
