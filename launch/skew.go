package launch

import (
	"fmt"
	"time"

	"github.com/serry-dev/serry/diagnose"
)

// The first launcher orders what happens on all hosts by the order in which it hears of it, never by the clocks of hosts. Where
// the clock of a host differs from that of the first launcher, the times in their logs do not show the true order. So the launcher reports the difference (D-SC-26).

// A skewMeter finds out by how much the clock of another host is ahead of that of this one. What a message says of the time of its
// host is too early by the time that the message took to come. So the greatest difference of all messages is the nearest to the truth.
type skewMeter struct {
	best  time.Duration
	heard int
	told  bool
}

const (
	skewLeast   = 2 * time.Second // that is worth a word
	skewSamples = 8               // messages before a clock is called behind: one message may have taken long
	mostSkews   = 16              // that a job tells of
)

// hear takes the time in a message that is read now. It returns the difference once, when it is certain and great.
func (s *skewMeter) hear(wall, now time.Time) (ahead time.Duration, news bool) {
	if wall.IsZero() || s.told {
		return 0, false // an older launcher does not say
	}
	if d := wall.Sub(now); s.heard == 0 || d > s.best {
		s.best = d
	}
	s.heard++
	s.told = s.best >= skewLeast || s.heard >= skewSamples && s.best <= -skewLeast
	return s.best, s.told
}

// A skewed event says that the clock of a host differs from that of this one.
type skewed struct {
	hand  hand
	node  int
	host  string
	ahead time.Duration
}

func (j *Job) skewed(ev skewed) {
	if !j.places.is(ev.node, ev.hand) || len(j.skews) >= mostSkews {
		return
	}
	text := diagnose.SkewText(ev.host, ev.ahead)
	if ev.host == "" {
		text = diagnose.SkewText(fmt.Sprint("node ", ev.node), ev.ahead)
	}
	j.skews = append(j.skews, text)
	j.note("%s", text)
}

// wall is the time on the wall of this host.
func (c Config) wall() time.Time {
	if c.Wall == nil {
		return time.Now()
	}
	return c.Wall()
}
