package limit

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"time"
)

// ErrForged means that a ticket was not made by the sidecars that hold this secret, or was damaged.
var ErrForged = errors.New("limit: this is no ticket of ours")

// Ticket is what a decision leaves to be settled: what was charged, and until when it may be. Its
// charges name limits of their own, which hold no more than settling needs.
type Ticket struct {
	ID      string // of the decision
	Expires int64  // until when it may be settled, in the store's time, µs since 1970
	Home    uint64 // the process whose own memory was charged; 0: the shared store
	Policy  string // empty for a limit that was asked by its own name
	Charges []Charge
	Marks   []int64 // beside Charges; see Settings.Mark
}

// A sealed ticket is base64 of: version, home, how long the id is, id, nonce, what is sealed with
// AES-GCM under HMAC-SHA256(secret, id), and a checksum of all that, by which a damaged ticket is told
// from one of another process.
const (
	ticketVersion  = 1
	ticketNonce    = 12
	ticketChecksum = 4
	ticketHead     = 1 + 8 + 1
)

// Seal returns the ticket as a client holds it: nothing in it can be read or changed without secret.
func (t *Ticket) Seal(secret Secret) string {
	head := binary.BigEndian.AppendUint64([]byte{ticketVersion}, t.Home)
	head = append(append(head, byte(len(t.ID))), t.ID...)
	nonce := make([]byte, ticketNonce)
	rand.Read(nonce) // never fails
	sealed := ticketCipher(secret, t.ID).Seal(append(slices.Clip(head), nonce...), nonce, t.pack(), head)
	sealed = binary.BigEndian.AppendUint32(sealed, crc32.ChecksumIEEE(sealed))
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// ticketCipher returns the cipher of one decision's tickets.
func ticketCipher(secret Secret, id string) cipher.AEAD {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("ticket\x00" + id))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		panic(err) // the key is 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return aead
}

// OpenTicket opens a sealed ticket with the first of secrets that fits; a nil secret fits nothing. zone
// finds a time zone by its name. The error is ErrForged, or ErrExpired for a ticket of another
// process's memory than home's.
func OpenTicket(text string, secrets []Secret, home uint64, zone func(string) (*time.Location, error)) (*Ticket, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") || len(raw) < ticketHead+ticketNonce+ticketChecksum || raw[0] != ticketVersion {
		return nil, ErrForged
	}
	body := raw[:len(raw)-ticketChecksum]
	idEnd := ticketHead + int(body[ticketHead-1])
	if crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(raw[len(body):]) || len(body) < idEnd+ticketNonce {
		return nil, ErrForged
	}
	t := &Ticket{Home: binary.BigEndian.Uint64(body[1:]), ID: string(body[ticketHead:idEnd])}
	if t.Home != 0 && t.Home != home {
		return nil, ErrExpired
	}
	for _, secret := range secrets {
		if secret == nil {
			continue
		}
		plain, err := ticketCipher(secret, t.ID).Open(nil, body[idEnd:idEnd+ticketNonce], body[idEnd+ticketNonce:], body[:idEnd])
		if err == nil {
			return t, t.unpack(plain, zone)
		}
	}
	return nil, ErrForged
}

// Actual returns what each charge of the ticket costs in the end, when the client names what it has
// used by unit, or amount without one: of the single limit, in a policy requests. What it does not
// name stays as charged; a slot is always freed. It is an InvalidError when no limit of the ticket
// counts a unit.
func (t *Ticket) Actual(costs []UnitCost, amount int64, hasAmount bool) ([]int64, error) {
	if hasAmount && len(costs) > 0 {
		return nil, invalid("cost", "give either one number or an object of units")
	}
	if hasAmount {
		if err := checkCost("cost", amount); err != nil {
			return nil, err
		}
	}
	for _, c := range costs {
		counted := c.Unit == RequestsUnit || slices.ContainsFunc(t.Charges, func(ch Charge) bool { return ch.Limit.Unit == c.Unit })
		if !counted {
			return nil, invalid("cost."+c.Unit, "no limit of the ticket counts this unit")
		}
		if err := checkCost("cost."+c.Unit, c.Amount); err != nil {
			return nil, err
		}
	}
	actual := make([]int64, len(t.Charges))
	for i := range t.Charges {
		actual[i] = t.actualOf(&t.Charges[i], costs, amount, hasAmount)
	}
	return actual, nil
}

func (t *Ticket) actualOf(c *Charge, costs []UnitCost, amount int64, hasAmount bool) int64 {
	if c.Settings.Algorithm == ConcurrencyAlgorithm {
		return 0
	}
	if hasAmount && (t.Policy == "" || c.Limit.Unit == RequestsUnit) {
		return amount
	}
	for _, cost := range costs {
		if cost.Unit == c.Limit.Unit {
			return cost.Amount
		}
	}
	return c.Cost
}
