package coord

import "slices"

// A roll lists things in the order they came. What is over stays in it until room is needed, so that an
// end costs nothing here, however long the roll is: it never holds more than twice what is not over, and
// a few.
type roll[E interface{ over() bool }] struct{ all []E }

func (r *roll[E]) add(e E) {
	if len(r.all) == cap(r.all) {
		if r.live(); 2*len(r.all) > cap(r.all) {
			r.all = slices.Grow(r.all, len(r.all)+1)
		}
	}
	r.all = append(r.all, e)
}

// live is what is not over. It is valid until the next add.
func (r *roll[E]) live() []E {
	r.all = slices.DeleteFunc(r.all, E.over)
	return r.all
}

// takeFirst takes out the first thing that is not over, if there is one.
func (r *roll[E]) takeFirst() (first E, ok bool) {
	for len(r.all) > 0 && !ok {
		first, ok = r.all[0], !r.all[0].over()
		clear(r.all[:1])
		r.all = r.all[1:]
	}
	return first, ok
}
