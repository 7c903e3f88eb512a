//go:build !unix

package conn

func temporary(err error) bool {
	ne, ok := err.(interface{ Temporary() bool })
	return ok && ne.Temporary()
}

func defaultMaxConns() int { return 10_000 }
