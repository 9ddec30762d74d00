package limit

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// Secret keys the hashes by which attribute values may leave this process. Every sidecar on one
// store must hold the same, or their keys differ.
type Secret []byte

// MinSecret is how many bytes a Secret has at least.
const MinSecret = 16

// NewSecret returns a random Secret of 32 bytes.
func NewSecret() Secret {
	s := make(Secret, 32)
	rand.Read(s) // never fails
	return s
}

// Hash returns 32 hex digits of HMAC-SHA256(secret, attribute, value).
func (s Secret) Hash(attribute, value string) string {
	return string(new(valueHash).append(nil, s, attribute, value))
}

// maxKeyPart is the length above which a key's values, or its tag, are replaced by their hash.
const maxKeyPart = 200

// keyPart is an attribute whose value is part of a key.
type keyPart struct {
	attribute string
	hashed    bool // only a keyed hash of it may leave the process
}

// prepareKeys lays out the fixed parts of the limit's keys: prefix:{name~h:values}, or with
// Colocate prefix:{tag}:name~h:values. hashed names the attributes of which only a keyed hash may
// leave the process.
func (l *Limit) prepareKeys(prefix string, hashed []string) {
	parts := func(names []string) (parts []keyPart) {
		for _, name := range names {
			parts = append(parts, keyPart{attribute: name, hashed: slices.Contains(hashed, name)})
		}
		return parts
	}
	l.keyValues, l.tagValues = parts(l.Key), parts(l.Colocate)
	l.id = l.Name + "~" + l.stateHash()
	own := l.id + ":"
	if len(l.Colocate) == 0 {
		l.keyHead = prefix + ":{" + own
		return
	}
	l.keyHead, l.keyTag = prefix+":{", "}:"+own
}

// KeyHash returns 8 hex digits of a state's key, by which a log line may name it.
func KeyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:4])
}

// keyBeside returns the key of something of the given kind that lies in the same slot of a Redis
// Cluster as key: prefix:{tag}:~kind:id.
func keyBeside(key, kind, id string) string {
	return key[:strings.IndexByte(key, '}')+1] + ":~" + kind + ":" + id
}

// grantKey returns the key under which a grant of these charges is remembered by the caller's id.
func grantKey(policy string, charges []Charge, id string) string {
	sum := sha256.New()
	for _, part := range append([]string{policy}, keysOf(charges)...) {
		sum.Write([]byte(part))
		sum.Write([]byte{0}) // which is in no name and no key
	}
	sum.Write([]byte(id))
	return keyBeside(charges[0].Key, "request", hex.EncodeToString(sum.Sum(nil)[:16]))
}

func keysOf(charges []Charge) []string {
	keys := make([]string, len(charges))
	for i := range charges {
		keys[i] = charges[i].Key
	}
	return keys
}

// ID names the limit and what its stored state means, as its keys do: name~h. It is empty before
// NewRules has taken the limit.
func (l *Limit) ID() string { return l.id }

// stateHash returns 6 hex digits of what the stored state means. A change of it starts afresh.
func (l *Limit) stateHash() string {
	meaning := append([]string{l.Settings.Algorithm.String(), l.State.String()}, l.Key...)
	meaning = append(meaning, l.Settings.span()...)
	sum := sha256.Sum256([]byte(strings.Join(meaning, "\n")))
	return hex.EncodeToString(sum[:3])
}

// appendKey appends the key of the state that a request with these attributes is counted in.
func (l *Limit) appendKey(dst []byte, attributes Attributes, secret Secret, hash *valueHash) []byte {
	dst = append(dst, l.keyHead...)
	if l.keyTag != "" {
		dst = appendValues(dst, l.tagValues, attributes, secret, hash)
		return appendValues(append(dst, l.keyTag...), l.keyValues, attributes, secret, hash)
	}
	return append(appendValues(dst, l.keyValues, attributes, secret, hash), '}')
}

// owns reports whether the key is that of a state of the limit, as it counts now.
func (l *Limit) owns(key string) bool {
	return strings.HasPrefix(key, l.keyHead) && strings.Contains(key, l.keyTag)
}

// appendValues writes the values of the parts, joined by colons, or their hash when they are long.
func appendValues(dst []byte, parts []keyPart, attributes Attributes, secret Secret, hash *valueHash) []byte {
	start := len(dst)
	for i := range parts {
		if i > 0 {
			dst = append(dst, ':')
		}
		value, _ := attributes.Get(parts[i].attribute)
		if parts[i].hashed {
			dst = hash.append(dst, secret, parts[i].attribute, value)
		} else {
			dst = appendEscaped(dst, value)
		}
	}
	if len(dst)-start <= maxKeyPart {
		return dst
	}
	sum := sha256.Sum256(dst[start:])
	return hex.AppendEncode(dst[:start], sum[:16])
}

// appendEscaped writes every byte outside A-Za-z0-9._- as %XX, so that no value can look like
// two, or like the end of a hash tag.
func appendEscaped(dst []byte, value string) []byte {
	const upper = "0123456789ABCDEF"
	plain := 0 // where what can be copied as it is begins
	for i := range len(value) {
		if c := value[i]; !plainInKey[c] {
			dst = append(dst, value[plain:i]...)
			dst = append(dst, '%', upper[c>>4], upper[c&15])
			plain = i + 1
		}
	}
	return append(dst, value[plain:]...)
}

// plainInKey is a table, since every byte of every key is looked up in it.
var plainInKey = func() (plain [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") {
		plain[c] = true
	}
	return plain
}()
