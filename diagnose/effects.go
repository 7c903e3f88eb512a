package diagnose

import "strings"

// brokenWords are in the errors of programs whose connection to another rank has ended: those of Gloo, NCCL, gRPC and the
// kernel (D-RC-4).
var brokenWords = []string{
	"connection reset", "connection closed", "connection refused", "connection aborted", "broken pipe", "socket closed",
	"closed by peer", "remote process exited", "end of file",
}

// BrokenByPeer says whether an error of a rank tells that its connection to another one has ended: then the other rank is
// what to look at. The text is that of any program.
func BrokenByPeer(text string) bool {
	text = strings.ToLower(text)
	for _, words := range brokenWords {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}
