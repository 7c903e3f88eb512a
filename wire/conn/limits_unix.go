//go:build unix

package conn

import (
	"errors"
	"syscall"
)

// temporary says whether accepting may work again later.
func temporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// defaultMaxConns is the limit on open files, less some for other uses.
func defaultMaxConns() int {
	const spare, least, most = 64, 64, 1 << 20
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1000
	}
	return max(least, int(min(uint64(limit.Cur), most))-spare)
}
