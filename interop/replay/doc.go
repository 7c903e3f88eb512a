// Package replay holds what real clients said to a coordination service, byte by byte, and tests that
// serry takes it as grpc-go would: each recording is played in virtual time to a server behind package
// front and to one behind grpc-go, and every call must end alike.
//
// A recording is a text file in testdata: what the service was told, then one line for each
// connection opened, frame sent, and connection closed, with the moment in milliseconds. Beside it
// lies the transcript of how each call ended, so that a change of what the service says is seen, too:
//
//	jax-new, jax-0.9.2, jax-0.8.2   two tasks of a job, each a process with jaxlib
//	tf                              two workers of TensorFlow
//	grpcio, grpc-go                 calls that jaxlib never makes: bad ones, and ones given up
//
// To record anew, with the environments that scripts/venvs.sh makes:
//
//	SERRY_RECORD=1 go test ./interop/replay -run Record
//	go test ./interop/replay -run Replay -rewrite
package replay
