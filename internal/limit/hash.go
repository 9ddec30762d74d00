package limit

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"hash/maphash"
)

// Hash names a state's key within this process: 128 bits, keyed by random seeds, so that nobody can look for
// two keys with the same one. Should two keys ever share one (among a million keys at once the odds are
// 1 to 10^27), what is known of the one would be held for what is known of the other for a second, and
// tokens on lease of the one would be handed out for the other.
type Hash [2]uint64

// Hasher makes the Hash of keys; those of two Hashers differ. It is safe for concurrent use.
type Hasher struct{ seeds [2]maphash.Seed }

// NewHasher returns a Hasher with seeds of its own.
func NewHasher() *Hasher {
	return &Hasher{[2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// Hash returns the hash of a key.
func (h *Hasher) Hash(key string) Hash {
	return Hash{maphash.String(h.seeds[0], key), maphash.String(h.seeds[1], key)}
}

// Keys are the keys of charges that are being resolved. Most are needed by their hash alone, and never
// become strings. The zero Keys gives no hashes. It is not safe for concurrent use.
type Keys struct {
	Hasher *Hasher // nil: charges get no Hash
	bytes  []byte
	hash   valueHash
}

// Reset forgets the keys, and keeps their memory.
func (k *Keys) Reset() { k.bytes = k.bytes[:0] }

// Name gives charges that were resolved with k, in a row and since the last Reset, their Key.
func (k *Keys) Name(charges []Charge) {
	if len(charges) == 0 || charges[0].Key != "" {
		return
	}
	first := charges[0].from
	all := string(k.bytes[first:charges[len(charges)-1].to])
	for i := range charges {
		c := &charges[i]
		c.Key = all[c.from-first : c.to-first]
	}
}

// add takes the key from there on for the charge's.
func (k *Keys) add(from int, c *Charge) {
	c.from, c.to = from, len(k.bytes)
	if k.Hasher != nil {
		key := k.bytes[from:]
		c.Hash = Hash{maphash.Bytes(k.Hasher.seeds[0], key), maphash.Bytes(k.Hasher.seeds[1], key)}
	}
}

// valueHash makes the hashes of Secret.Hash with one secret again and again: getting ready for that takes longer
// than a hash. The zero valueHash is ready. It is not safe for concurrent use.
type valueHash struct {
	secret Secret
	mac    hash.Hash
	text   []byte
	sum    []byte
}

// append appends Secret.Hash of a value.
func (h *valueHash) append(dst []byte, secret Secret, attribute, value string) []byte {
	if h.mac == nil || !bytes.Equal(h.secret, secret) {
		h.secret, h.mac = bytes.Clone(secret), hmac.New(sha256.New, secret)
	}
	h.mac.Reset()
	h.text = append(h.text[:0], attribute...)
	h.text = append(h.text, 0)
	h.text = append(h.text, value...)
	h.mac.Write(h.text)
	h.sum = h.mac.Sum(h.sum[:0])
	return hex.AppendEncode(dst, h.sum[:16])
}
