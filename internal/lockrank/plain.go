//go:build !lockrank

package lockrank

import "sync"

// Checked says whether the order of locks is checked.
const Checked = false

// A Mutex is a mutex of rank R.
type Mutex[R Rank] struct{ mu sync.Mutex }

// Lock locks the mutex.
func (m *Mutex[R]) Lock() { m.mu.Lock() }

// Unlock unlocks it.
func (m *Mutex[R]) Unlock() { m.mu.Unlock() }
