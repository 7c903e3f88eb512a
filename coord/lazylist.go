package coord

import "slices"

// A lazyList has entries in the order they came. An entry that is over stays until room is
// needed, so that the end of an entry costs nothing here, however long the list is. The list
// never holds more than twice as many entries as are not over, and a few.
//
// It is for entries that stand in several lists at once, such as a barrier in the lists of its
// members: the event that ends the barrier need not remove it from ten thousand lists.
type lazyList[E interface{ over() bool }] struct{ all []E }

// add appends an entry. If the list is full it first drops what is over, and grows only if that
// made too little room.
func (l *lazyList[E]) add(e E) {
	if len(l.all) == cap(l.all) {
		if l.live(); 2*len(l.all) > cap(l.all) {
			l.all = slices.Grow(l.all, len(l.all)+1)
		}
	}
	l.all = append(l.all, e)
}

// live drops the entries that are over and returns the others. The slice is valid until the next
// add; a caller whose loop may end entries makes a copy first.
func (l *lazyList[E]) live() []E {
	l.all = slices.DeleteFunc(l.all, E.over)
	return l.all
}

// takeFirst takes out the first entry that is not over, if there is one.
func (l *lazyList[E]) takeFirst() (first E, ok bool) {
	for len(l.all) > 0 && !ok {
		first, ok = l.all[0], !l.all[0].over()
		clear(l.all[:1])
		l.all = l.all[1:]
	}
	return first, ok
}
