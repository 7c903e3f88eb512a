package wire

import "time"

// BarriersEvidence asks when tasks came to the barriers that have ended lately. The service answers it by itself: it asks no
// attendant. Without an argument the answer has all barriers that are kept, without arrivals; with the number of one, that one
// with its arrivals. An older service passes the question on to attendants, which do not know it, so the answer has no part.
const BarriersEvidence = "barriers"

// BarrierLogVersion is the version of [BarrierLog]. It changes when a field changes its meaning or goes.
const BarrierLogVersion = 1

// A BarrierLog is the body of the answer about barriers, as JSON.
type BarrierLog struct {
	Version  int             `json:"version"`
	Jobs     []JobStatus     `json:"jobs"`     // whose tasks, one job after the other, have the numbers that arrivals are by
	Barriers []BarrierRecord `json:"barriers"` // the newest first
}

// A BarrierRecord is a barrier that has ended.
type BarrierRecord struct {
	Number  uint64    `json:"number"` // ascends
	ID      string    `json:"id"`
	Counter int64     `json:"counter"`
	Began   time.Time `json:"began"` // its first arrival, on the wall of the server
	Arrived int       `json:"arrived"`
	Members int       `json:"members"`
	First   string    `json:"first,omitempty"` // the task that came first
	Last    string    `json:"last,omitempty"`  // the one that came last
	Seconds float64   `json:"seconds"`         // from the first arrival to the end
	Lag     float64   `json:"lag_seconds"`     // how long after the median task the last one came
	Missing []string  `json:"missing"`         // where it failed, the first tasks that had not come
	Error   string    `json:"error,omitempty"`

	// Arrivals are, by number of the task, seconds after the first arrival; negative: it has not come, or was not to come. Only
	// where this barrier was asked for.
	Arrivals []float64 `json:"arrivals,omitempty"`
}
