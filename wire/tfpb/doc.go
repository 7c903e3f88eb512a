// Package tfpb holds the messages of dialect TF of the coordination service, package tensorflow on
// the wire: what TensorFlow speaks, and jaxlib up to 0.9.2; and the container in which errors of
// both dialects carry their facts. Package wire gives them their meaning; only it and tests of the
// wire should need this one.
package tfpb
