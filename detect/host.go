package detect

import (
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// A host is one end of a stream. Which lives came by it says whom its silence is evidence against, and
// which hosts the server keeps informed of a life, so that they can answer heartbeats (A-SIDE-3).
type host struct {
	// One program, not a relay. A relay may lose its connection while the processes behind it live on; the
	// stream of a client ends with its process.
	client bool

	online bool                // it has a connection
	lives  map[serry.Life]bool // that came by it
}

// Online says that h has a connection. client is true for a host that is one program, false for a relay.
func (d *Detector[H]) Online(h H, client bool) {
	o := d.hosts[h]
	if o == nil {
		o = &host{lives: make(map[serry.Life]bool)}
		d.hosts[h] = o
	}
	o.client, o.online = client, true
}

// Offline says that h has no connection any more. It may resume its stream, so this alone is no evidence.
// But an exit that was seen while the stream seemed to carry the life is believed now.
func (d *Detector[H]) Offline(h H, now coord.Time) {
	o := d.hosts[h]
	if o == nil {
		return
	}
	o.online = false
	for _, l := range sorted(o.lives) {
		if n := d.links[l]; n != nil && d.adrift(l) {
			d.believe(l, n, now)
		}
	}
}

// Came says that l is at h now: it calls or beats there. A life may move from one host to another, so of all hosts
// that it came by, only the last one speaks for it by its silence. A host that Online was never called for, or
// that has left, is ignored.
func (d *Detector[H]) Came(l serry.Life, h H) {
	o := d.hosts[h]
	if o == nil || d.at(l, h) {
		return
	}
	o.lives[l] = true
	others := slices.DeleteFunc(d.hostsOf[l], func(other H) bool { return other == h })
	d.hostsOf[l] = append(others, h)
}

// Follow says that h wants to hear of l, which came by h earlier and may be at another host now.
func (d *Detector[H]) Follow(l serry.Life, h H) {
	o := d.hosts[h]
	if o == nil || o.lives[l] {
		return
	}
	o.lives[l] = true
	d.hostsOf[l] = slices.Insert(d.hostsOf[l], 0, h)
}

// at says whether h is the last host that l came by.
func (d *Detector[H]) at(l serry.Life, h H) bool {
	hosts := d.hostsOf[l]
	return len(hosts) > 0 && hosts[len(hosts)-1] == h
}

// Hosts are the hosts that l came by, the last one last. The slice is the detector's own.
func (d *Detector[H]) Hosts(l serry.Life) []H { return d.hostsOf[l] }

// Unfollow forgets which hosts a life came by.
func (d *Detector[H]) Unfollow(l serry.Life) {
	for _, h := range d.hostsOf[l] {
		delete(d.hosts[h].lives, l)
	}
	delete(d.hostsOf, l)
}

// remove forgets a host, and returns the lives that came by it, in order.
func (d *Detector[H]) remove(h H) (lives []serry.Life, client bool) {
	o := d.hosts[h]
	if o == nil {
		return nil, false
	}
	delete(d.hosts, h)
	lives = sorted(o.lives)
	for _, l := range lives {
		others := slices.DeleteFunc(d.hostsOf[l], func(other H) bool { return other == h })
		if d.hostsOf[l] = others; len(others) == 0 {
			delete(d.hostsOf, l)
		}
	}
	return lives, o.client
}

// adrift says whether l came by streams of clients alone, none of which is connected. A stream may be
// resumed, so that alone is no evidence; but no process is at the other end that could be mistaken for
// another.
func (d *Detector[H]) adrift(l serry.Life) bool {
	hosts := d.hostsOf[l]
	return len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h H) bool {
		return !d.hosts[h].client || d.hosts[h].online
	})
}

// Left says that h has closed its stream in order. If it is a client of serry's own, its lives end at
// once: the grace is for streams that break and may be resumed. The goodbye of a relay says nothing
// about the tasks behind it, which may connect to another.
func (d *Detector[H]) Left(h H) {
	lives, client := d.remove(h)
	if !client {
		return
	}
	var found []suspect
	for _, l := range lives {
		if n := d.links[l]; n != nil && n.open == 0 && n.resumes {
			n.over = true
			found = append(found, suspect{l, true, ConnectionClosed})
		}
	}
	d.suspect(found)
}

// Silenced says that nothing was heard of these hosts for too long (C-LOST-5). Their connections are
// detached before. A life that came by one of them is lost, unless a connection carries it or it has come by another
// host since. The second matters after a change of leader: the heartbeats of a life reach the new leader in the beats
// of its host, and no connection carries the life before it makes a call.
func (d *Detector[H]) Silenced(hosts []H) {
	var found []suspect
	seen := make(map[serry.Life]bool)
	for _, h := range hosts {
		last := d.lastAt(h)
		_, client := d.remove(h)
		for _, l := range last {
			if n := d.links[l]; !seen[l] && (n == nil || n.open == 0) {
				seen[l] = true
				found = append(found, suspect{l, true, SilentEvidence(client)})
			}
		}
	}
	d.suspect(found)
}

// lastAt lists the lives for which h is the last host that they came by, in order.
func (d *Detector[H]) lastAt(h H) []serry.Life {
	if d.hosts[h] == nil {
		return nil
	}
	return slices.DeleteFunc(sorted(d.hosts[h].lives), func(l serry.Life) bool { return !d.at(l, h) })
}

// SilentEvidence is what the silence of a host is evidence of.
func SilentEvidence(client bool) string {
	if client {
		return StreamNotResumed
	}
	return HostSilent
}
