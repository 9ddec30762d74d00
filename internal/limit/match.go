package limit

// Match is one condition on an attribute of a request.
type Match struct {
	Attribute string
	Pattern   string // a glob: * is any run of bytes, ? any one byte, \ makes the next byte plain
}

// matchesAll reports whether every condition holds; no condition holds always.
func matchesAll(when []Match, attributes Attributes) bool {
	for _, m := range when {
		value, _ := attributes.Get(m.Attribute)
		if !Glob(m.Pattern, value) {
			return false
		}
	}
	return true
}

// Glob reports whether the whole of s matches pattern, where * stands for any run of bytes, ?
// for any one byte, and \ makes the next byte plain (at the end it is itself). It compares
// bytes, so it knows no case and no Unicode form. It takes at most len(pattern) × len(s) steps.
func Glob(pattern, s string) bool {
	p, i := 0, 0
	star, restart := -1, 0 // after the last *, and where in s its run ends so far
	for i < len(s) {
		if p < len(pattern) {
			c, width, plain := pattern[p], 1, false
			if c == '\\' && p+1 < len(pattern) {
				c, width, plain = pattern[p+1], 2, true
			}
			if c == '*' && !plain {
				p++
				star, restart = p, i
				continue
			}
			if c == s[i] || c == '?' && !plain {
				p, i = p+width, i+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		restart++
		p, i = star, restart
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
