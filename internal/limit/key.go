package limit

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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
	mac := hmac.New(sha256.New, s)
	mac.Write([]byte(attribute))
	mac.Write([]byte{0})
	mac.Write([]byte(value))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// maxKeyPart is the length above which a key's values, or its tag, are replaced by their hash.
const maxKeyPart = 200

// prepareKeys lays out the fixed parts of the limit's keys: prefix:{name~h:values}, or with
// Colocate prefix:{tag}:name~h:values.
func (l *Limit) prepareKeys(prefix string) {
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
func (l *Limit) appendKey(dst []byte, attributes Attributes, hashed map[string]bool, secret Secret) []byte {
	dst = append(dst, l.keyHead...)
	if l.keyTag != "" {
		dst = appendValues(dst, l.Colocate, attributes, hashed, secret)
		return appendValues(append(dst, l.keyTag...), l.Key, attributes, hashed, secret)
	}
	return append(appendValues(dst, l.Key, attributes, hashed, secret), '}')
}

// owns reports whether the key is that of a state of the limit, as it counts now.
func (l *Limit) owns(key string) bool {
	return strings.HasPrefix(key, l.keyHead) && strings.Contains(key, l.keyTag)
}

// appendValues writes the named values, joined by colons, or their hash when they are long.
func appendValues(dst []byte, names []string, attributes Attributes, hashed map[string]bool, secret Secret) []byte {
	start := len(dst)
	for i, name := range names {
		value, _ := attributes.Get(name)
		if hashed[name] {
			value = secret.Hash(name, value)
		}
		if i > 0 {
			dst = append(dst, ':')
		}
		dst = appendEscaped(dst, value)
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
	for _, c := range []byte(value) {
		if plainInKey(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upper[c>>4], upper[c&15])
		}
	}
	return dst
}

func plainInKey(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}
