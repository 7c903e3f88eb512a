package launch

import (
	"fmt"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/relay"
	"github.com/serry-dev/serry/wire"
)

// outageNews tells people of outages of a service that others run, as the relay of this host sees them (D-SC-14).
type outageNews struct {
	last relay.Status // what was seen the last time
	seen bool         // the service was within reach at some time
	told bool         // that it is out of reach
}

// outageAfter is how long the service must be out of reach before people are told. Most outages are over before that.
const outageAfter = 2 * time.Second

// step says what is new, or nothing. lost is how many ranks the job has lost.
func (o *outageNews) step(st relay.Status, giveUp time.Duration, now time.Time, lost int) (text string) {
	if !o.seen && st.Down && st.Address != "" {
		o.last, o.seen = st, true // it was within reach before the first look, and is lost already
	}
	was := o.last
	switch {
	case !o.seen: // the term does not tell: a server without a journal has term 0
	case st.Down && !o.told && now.Sub(st.Since) >= outageAfter:
		o.told = true
		until := time.Time{}
		if giveUp > 0 {
			until = st.Since.Add(giveUp)
		}
		text = diagnose.OutageText(st.Since, until)
	case st.Down:
		return "" // what was seen before it went down is still the last
	case st.Term != was.Term && st.Address != was.Address:
		t := &wire.Takeover{From: was.Address, At: st.Since, TookSeconds: st.Last.Seconds()}
		text = diagnose.TakeoverText(t, st.Address, time.Local, lost)
	case o.told:
		text = fmt.Sprintf("coordinator is back at %s after %s", st.Since.Format(time.TimeOnly), diagnose.Ago(st.Last.Seconds()))
	}
	if !st.Down {
		o.last, o.seen, o.told = st, true, false
	}
	return text
}

func (s *external) news(now time.Time, lost int) string {
	p := s.relays.now()
	if p == nil {
		return ""
	}
	return s.outage.step(p.relay.Status(), s.giveUp, now, lost)
}
