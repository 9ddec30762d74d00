package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestCheckRefuses(t *testing.T) {
	long := strings.Repeat("x", 5000)
	many := func(n int, format string) string {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf(format, i))
		}
		return strings.Join(parts, ",")
	}
	tests := []struct {
		name, body string
		field      string
		says       string // part of the detail
	}{
		{"nothing", ``, "", "empty"},
		{"white space", ` `, "", "not one JSON object"},
		{"no JSON", `limit=per-user`, "", "byte 1"},
		{"cut off", `{"limit":"per-user","key":"u`, "", "byte"},
		{"cut off after a value", `{"limit":"per-user"`, "", "byte"},
		{"a comma too many", `{"limit":"per-user","key":"u",}`, "", "byte 31"},
		{"a byte order mark", "\ufeff{}", "", "byte 1"},
		{"trailing data", `{"limit":"per-user","key":"u"} {}`, "", "byte 32"},
		{"trailing letters", `{"limit":"per-user","key":"u"}x`, "", "byte 31"},
		{"an array", `[]`, "", "must be a JSON object"},
		{"a string", `"limit"`, "", "must be a JSON object"},
		{"null", `null`, "", "must be a JSON object"},
		{"not UTF-8", "{\"limit\":\"per-user\",\"key\":\"\xff\"}", "", "UTF-8"},
		{"half a surrogate", `{"limit":"per-user","key":"\ud800"}`, "", "surrogate"},
		{"the other half", `{"limit":"per-user","key":"\udfff"}`, "", "surrogate"},
		{"two first halves", `{"limit":"per-user","key":"\ud83d\ud83d"}`, "", "surrogate"},
		{"half a surrogate in a name", `{"limit":"pair","attributes":{"user":"u","\udc00":"x"}}`, "", "surrogate"},
		{"a control character", "{\"limit\":\"per-user\",\"key\":\"a\nb\"}", "", "byte"},
		{"nothing named", `{}`, "policy", "missing"},
		{"both named", `{"policy":"chat","limit":"per-user"}`, "limit", "one of the two"},
		{"an empty policy", `{"policy":""}`, "policy", "empty"},
		{"an empty limit", `{"limit":"","key":"u"}`, "limit", "empty"},
		{"policy null", `{"policy":null}`, "policy", "must be a string"},
		{"policy a number", `{"policy":7}`, "policy", "must be a string"},
		{"limit an object", `{"limit":{}}`, "limit", "must be a string"},
		{"key missing", `{"limit":"per-user"}`, "attributes.user", "missing"},
		{"key null", `{"limit":"per-user","key":null}`, "key", "must be a string"},
		{"key empty", `{"limit":"per-user","key":""}`, "key", "empty"},
		{"key a number", `{"limit":"per-user","key":42}`, "key", "must be a string"},
		{"key of two attributes", `{"limit":"pair","key":"u"}`, "key", "2 key attributes"},
		{"key with a policy", `{"policy":"chat","key":"u"}`, "key", "goes with limit"},
		{"key and its attribute", `{"limit":"per-user","key":"u","attributes":{"user":"u"}}`, "key", "already"},
		{"attribute missing", `{"policy":"chat","attributes":{"user":"u"}}`, "attributes.tenant", "missing"},
		{"attribute empty", `{"policy":"chat","attributes":{"user":"","tenant":"t"}}`, "attributes.user", "empty"},
		{"attribute null", `{"policy":"chat","attributes":{"user":null,"tenant":"t"}}`, "attributes.user", "must be a string"},
		{"attribute a number", `{"policy":"chat","attributes":{"user":42,"tenant":"t"}}`, "attributes.user", "must be a string"},
		{"attribute an array", `{"policy":"chat","attributes":{"user":["u"],"tenant":"t"}}`, "attributes.user", "must be a string"},
		{"attributes null", `{"policy":"chat","attributes":null}`, "attributes", "object of strings"},
		{"attributes an array", `{"policy":"chat","attributes":["user","u"]}`, "attributes", "object of strings"},
		{"attribute without a name", `{"policy":"chat","attributes":{"":"u"}}`, "attributes", "empty name"},
		{"attribute twice", `{"policy":"chat","attributes":{"user":"u","tenant":"t","user":"v"}}`, "attributes.user", "given twice"},
		{"attribute twice, once escaped", `{"policy":"chat","attributes":{"user":"u","us\u0065r":"v"}}`, "attributes.user", "given twice"},
		{"65 attributes", `{"policy":"chat","attributes":{` + many(65, `"a%d":"x"`) + `}}`, "attributes", "more than 64"},
		{"field twice", `{"limit":"per-user","key":"u","limit":"per-user"}`, "limit", "given twice"},
		{"field twice, once escaped", `{"limit":"per-user","key":"u","\u006cimit":"x"}`, "limit", "given twice"},
		{"unknown field", `{"limit":"per-user","user":"u"}`, "user", "an attribute goes inside attributes"},
		{"unknown field, close to one", `{"polcy":"chat"}`, "polcy", "unknown field; there are policy, limit, key,"},
		{"unknown field, close to another", `{"limit":"per-user","costs":1}`, "costs", "unknown field; there are policy, limit, key,"},
		{"fields have a case", `{"Limit":"per-user","key":"u"}`, "Limit", "unknown field; there are policy, limit, key,"},
		{"an empty field", `{"":1}`, "", "unknown field"},
		{"a long unknown field", `{"` + long + `":1}`, long[:200] + "…", "unknown field"},
		{"cost a string", `{"limit":"per-user","key":"u","cost":"1"}`, "cost", "whole number"},
		{"cost null", `{"limit":"per-user","key":"u","cost":null}`, "cost", "whole number"},
		{"cost true", `{"limit":"per-user","key":"u","cost":true}`, "cost", "whole number"},
		{"cost an array", `{"limit":"per-user","key":"u","cost":[1]}`, "cost", "whole number"},
		{"cost negative", `{"limit":"per-user","key":"u","cost":-1}`, "cost", "negative"},
		{"cost minus nothing", `{"limit":"per-user","key":"u","cost":-0}`, "cost", "negative"},
		{"cost a fraction", `{"limit":"per-user","key":"u","cost":1.5}`, "cost", "without fraction"},
		{"cost 1.0", `{"limit":"per-user","key":"u","cost":1.0}`, "cost", "without fraction"},
		{"cost 1e3", `{"limit":"per-user","key":"u","cost":1e3}`, "cost", "without fraction or exponent"},
		{"cost 1e999999999", `{"limit":"per-user","key":"u","cost":1e999999999}`, "cost", "without fraction or exponent"},
		{"cost 2^53 + 1", `{"limit":"top","key":"u","cost":9007199254740993}`, "cost", "at most 9007199254740992"},
		{"cost 2^63", `{"limit":"top","key":"u","cost":9223372036854775808}`, "cost", "at most"},
		{"cost of 3000 digits", `{"limit":"top","key":"u","cost":1` + strings.Repeat("0", 3000) + `}`, "cost", "at most"},
		{"cost 01", `{"limit":"per-user","key":"u","cost":01}`, "", "byte"},
		{"cost +1", `{"limit":"per-user","key":"u","cost":+1}`, "", "byte"},
		{"cost NaN", `{"limit":"per-user","key":"u","cost":NaN}`, "", "byte"},
		{"unit a string", `{"policy":"chat","cost":{"tokens":"1"}}`, "cost.tokens", "whole number"},
		{"unit null", `{"policy":"chat","cost":{"tokens":null}}`, "cost.tokens", "whole number"},
		{"unit negative", `{"policy":"chat","cost":{"tokens":-5}}`, "cost.tokens", "negative"},
		{"unit twice", `{"policy":"chat","cost":{"tokens":1,"tokens":2}}`, "cost.tokens", "given twice"},
		{"unit that nobody counts", `{"policy":"chat","attributes":{"user":"u","tenant":"t"},"cost":{"tokns":1}}`, "cost.tokns", "tokens"},
		{"65 units", `{"policy":"chat","cost":{` + many(65, `"u%d":1`) + `}}`, "cost", "more than 64"},
		{"ticket a string", `{"limit":"per-user","key":"u","ticket":"no"}`, "ticket", "true or false"},
		{"ticket null", `{"limit":"per-user","key":"u","ticket":null}`, "ticket", "true or false"},
		{"a request id, empty", `{"limit":"per-user","key":"u","request_id":""}`, "request_id", "1 to 256 bytes"},
		{"a request id, null", `{"limit":"per-user","key":"u","request_id":null}`, "request_id", "1 to 256 bytes"},
		{"a request id, a number", `{"limit":"per-user","key":"u","request_id":7}`, "request_id", "1 to 256 bytes"},
		{"a request id of 257 bytes", `{"limit":"per-user","key":"u","request_id":"` + strings.Repeat("é", 128) + `x"}`, "request_id", "1 to 256 bytes"},
		{"a request id twice", `{"limit":"per-user","key":"u","request_id":"a","request_id":"a"}`, "request_id", "given twice"},
		{"a wait for nothing", `{"limit":"per-user","key":"u","max_wait_ms":100}`, "max_wait_ms", "is a leaky_bucket"},
		{"a wait, a string", `{"limit":"per-user","key":"u","max_wait_ms":"100"}`, "max_wait_ms", "whole number from 0 to 600000"},
		{"a wait, null", `{"limit":"per-user","key":"u","max_wait_ms":null}`, "max_wait_ms", "whole number from 0 to 600000"},
		{"a wait, negative", `{"limit":"per-user","key":"u","max_wait_ms":-1}`, "max_wait_ms", "negative"},
		{"a wait, a fraction", `{"limit":"per-user","key":"u","max_wait_ms":0.5}`, "max_wait_ms", "without fraction"},
		{"a wait above ten minutes", `{"limit":"per-user","key":"u","max_wait_ms":600001}`, "max_wait_ms", "at most 600000"},
		{"a wait of 3000 digits", `{"limit":"per-user","key":"u","max_wait_ms":1` + strings.Repeat("0", 3000) + `}`, "max_wait_ms", "at most 600000"},
		{"checks and more", `{"checks":[{"limit":"per-user","key":"u"}],"cost":1}`, "checks", "stands alone"},
		{"more and checks", `{"policy":"chat","checks":[{"limit":"per-user","key":"u"}]}`, "checks", "stands alone"},
		{"no checks", `{"checks":[]}`, "checks", "is empty"},
		{"101 checks", `{"checks":[` + many(101, `{"limit":"all","cost":%d}`) + `]}`, "checks", "more than 100"},
		{"checks null", `{"checks":null}`, "checks", "must be an array"},
		{"checks twice", `{"checks":[{}],"checks":[{}]}`, "checks", "given twice"},
		{"checks of broken JSON", `{"checks":[{"limit":"all"},{]}`, "", "byte"},
		{"checks cut off", `{"checks":[{"limit":"all"}`, "", "byte"},
		{"brackets without end", strings.Repeat("[", 60_000), "", ""},
		{"deep checks", `{"checks":` + strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000) + `}`, "", ""},
	}
	s := start(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := s.check(t, tt.body)
			wantProblem(t, got, 400, "invalid-request", tt.field)
			if p := decode[problem](t, got.body); !strings.Contains(p.Detail, tt.says) {
				t.Errorf("got detail %q, want it to say %q", p.Detail, tt.says)
			}
			if len(got.body) > 2000 {
				t.Errorf("the answer has %d bytes", len(got.body))
			}
		})
	}
	if s.store.calls != 0 {
		t.Errorf("the store was asked %d times, want never", s.store.calls)
	}
}

func TestCheckUnknownNames(t *testing.T) {
	s := start(t, nil)
	for _, body := range []string{
		`{"policy":"chats","attributes":{"user":"u"}}`, `{"limit":"chat","key":"u"}`, `{"policy":"per-user"}`,
		`{"policy":"` + strings.Repeat("é", 20_000) + `"}`,
	} {
		got := s.check(t, body)
		wantProblem(t, got, 404, "unknown-policy", "")
		if len(got.body) > 2000 {
			t.Errorf("the answer has %d bytes", len(got.body))
		}
	}
}
