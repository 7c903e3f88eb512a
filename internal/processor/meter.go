package processor

import (
	"syscall"
	"time"
)

// A Meter measures times since it was made. Its readings are ticks of the counter, and become times only when they are asked for, by
// the rate at which counter and clock have run since the meter was made.
//
// Where the counter is not steady a tick is a nanosecond of the clock. So it is in a bubble of testing/synctest, whose time is not that of
// the counter. A Meter does not change, and may be used by many goroutines.
type Meter struct {
	made  time.Time
	first int64 // of the counter, when the meter was made
	bare  bool  // the counter is read, and not the clock
}

// Ticks are a time as a meter measures it.
type Ticks int64

// NewMeter makes a meter.
func NewMeter() Meter {
	m := Meter{bare: isSteady && !isVirtual(time.Now())}
	m.made, m.first = time.Now(), ticks()
	return m
}

// isVirtual says whether now is not the time of the system.
func isVirtual(now time.Time) bool {
	var t syscall.Timeval
	return syscall.Gettimeofday(&t) != nil || now.Sub(time.Unix(t.Unix())).Abs() > time.Hour
}

// Made is when the meter was made.
func (m *Meter) Made() time.Time { return m.made }

// Now is the time since the meter was made.
func (m *Meter) Now() Ticks {
	if !m.bare {
		return Ticks(time.Since(m.made))
	}
	return Ticks(ticks() - m.first)
}

// Time is when the meter said t.
func (m *Meter) Time(t Ticks) time.Time { return m.made.Add(m.Rate().Duration(t)) }

// A Rate is the nanoseconds of a tick.
type Rate float64

// Rate is what a tick has been worth until now. It is wrong by the time between a look at the clock and one at the counter, in all the time since
// the meter was made.
func (m *Meter) Rate() Rate {
	if since, now := time.Since(m.made), m.Now(); m.bare && now > 0 {
		return Rate(since) / Rate(now)
	}
	return 1
}

// Duration is the time of so many ticks.
func (r Rate) Duration(t Ticks) time.Duration { return time.Duration(Rate(t) * r) }
