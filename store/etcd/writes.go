package etcd

// A write of this package may be performed more than once. Its request is sent again when no answer came
// in time, and the first request may arrive last: it waited in the socket of a frozen process, in a proxy,
// or in a member that was cut off. Every write must therefore be harmless when it is performed once more
// at any later time. The fence rules out every time after the reign; within the reign this holds:
//
//	write                  compares                        performed again, late
//	format                 fence                           puts the same text
//	batch                  fence, key absent               the key is there; or a snapshot covers its number, so
//	                                                       that no reader asks for it and the next Save removes it
//	part of a blob         fence, key absent               the key is there; or the blob was removed, and the part
//	                                                       is garbage that the next Save removes
//	snapshot key           fence, revision of the key      the key has another revision
//	value key              fence, revision of the key,     the key has another revision; or key and blob were removed
//	                       birth of the blob's first part  together, and a part that came back has another birth
//	touch of a value key   fence, key present              keeps the value for one Save longer
//	removal of batches     fence                           numbers up to a snapshot are never used again
//	removal of a value     fence, revision of the key      the key has another revision
//	removal of a blob      fence                           ids are never used again
//	compaction             nothing                         etcd refuses a revision that it has dropped
//	grant of a lease       nothing                         a lease that no key uses, which ends by itself
//	key of a candidate     nothing                         the lease has ended and etcd refuses the key; or it
//	                                                       lives, and the key keeps the revision of its creation
//	end of a lease         nothing                         ids of leases are never used again
//
// A blob that a request on its way may still name is not garbage, whatever the keys say: see blobs.unnamed.
// Package member lists its own writes at Replace.
