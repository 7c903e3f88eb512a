// Package interop holds tests of serry against clients that serry did not
// write: jaxlib in both dialects, jax on top of it, and TensorFlow. Nothing in
// those clients is patched. They run as processes of their own, installed from
// the Python package registry by scripts/venvs.sh, and when a test says that a
// process is killed, it is.
//
// Start with process, which is any child of a test, and client, which is a
// process with one jaxlib client in it that does what the test tells it, line by
// line. Programs for more than that are in testdata.
//
// Settings, by environment:
//
//	SERRY_BINARY  the server to test; built from cmd/serry when unset
//	SERRY_SEED    for the random moments at which servers are killed; a test
//	              says which one it used
//	SERRY_KILLS   how often the leader of a job is killed, ten times when unset
//	CI=true       a missing Python or registry, or a machine without network
//	              namespaces, fails the tests instead of skipping them
//
// Tests run beside each other, with a bound on their processes: see beside. None
// relies on a port that another test could take (unusedAddress), nor on being
// alone in this process.
//
// Tests follow each other by lines on pipes and by process exits, never by
// sleeping. Where the specification itself gives a time, the test measures it,
// logs it, and holds it to a bound that a busy machine still meets. Only what is
// to happen at a random moment waits for a clock.
package interop
