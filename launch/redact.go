package launch

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// redacted stands for a secret. It matches no rule below in a way that would
// change it, so redacting twice changes nothing.
const redacted = "[redacted]"

// Redact replaces known secret shapes in s by "[redacted]" (rule
// launch/safe-error): authorization and cookie headers, pairs such as
// key=… token: … "password": "…" also in URL queries, keys with the prefix of a
// known provider, PEM private keys also when cut or on one line, the user part
// of URLs, and JSON web tokens.
//
// It errs towards redacting: one word too many may go, such as the word after
// "key:". Prose, paths, digests and ids without such a mark stay as they are. A
// secret without any mark cannot be recognised. It takes time linear in len(s)
// and keeps everything else byte for byte, also invalid UTF-8.
func Redact(s string) string {
	// A mark can join what stood apart into a further shape. Each round but the
	// last swallows at least one byte that is no mark; few texts need two.
	for range 8 {
		t := replace(s, secrets(s))
		if t == s {
			break
		}
		s = t
	}
	return s
}

// span is a secret in a text, s[from:to].
type span struct{ from, to int }

// secrets returns the secrets in s. Every rule reads all of s, so that none
// hides from another; the words looked for first only save time.
func secrets(s string) []span {
	var found []span
	low := lowerASCII(s)
	if has(s, "PRIVATE KEY") {
		found = append(matches(s, pem), matches(s, pemTail)...)
	}
	if has(s, "@") {
		found = append(found, matches(s, userinfo)...)
	}
	if has(low, "cookie") {
		found = append(found, matches(s, cookie)...)
	}
	if has(low, "pass", "pwd", "secret", "token", "credential", "auth", "bearer", "sig", "key") {
		found = append(found, values(s, pair, notPlain)...)
		if has(s, "-") {
			found = append(found, values(s, flag, notPlain)...)
		}
	}
	if has(low, "bearer", "basic") {
		found = append(found, values(s, scheme, looksRandom)...)
	}
	if has(s, "eyJ") {
		found = append(found, matches(s, webToken)...)
	}
	return append(found, providerKeys(s)...)
}

// replace puts one mark in the place of all spans that touch.
func replace(s string, found []span) string {
	if len(found) == 0 {
		return s
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var b strings.Builder
	end := 0
	for i, f := range found {
		if i == 0 || f.from > end {
			b.WriteString(s[end:f.from])
			b.WriteString(redacted)
		}
		end = max(end, f.to)
	}
	b.WriteString(s[end:])
	return b.String()
}

// has reports whether s contains one of the words.
func has(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// lowerASCII returns s with small letters and every other byte as it is.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// matches returns what the first group of re matches.
func matches(s string, re *regexp.Regexp) []span {
	var found []span
	for _, m := range re.FindAllStringSubmatchIndex(s, -1) {
		found = append(found, span{m[2], m[3]})
	}
	return found
}

// values returns the value that follows each match of lead, if it is a secret.
func values(s string, lead *regexp.Regexp, isSecret func(string) bool) []span {
	var found []span
	end := 0 // of the last value
	for _, m := range lead.FindAllStringIndex(s, -1) {
		if m[1] < end || m[1] == len(s) {
			continue
		}
		if from, to := valueAt(s, m[1]); from < to && isSecret(s[from:to]) {
			found = append(found, span{from, to})
			end = to
		}
	}
	return found
}

const pemEnd = `-{4,} ?END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,}`

// A PEM private key, up to its end mark or the end of the text; and the rest of
// one whose front is missing.
var (
	pem     = regexp.MustCompile(`(?s)(-{4,} ?BEGIN [A-Z0-9 ]*PRIVATE KEY.*?(?:` + pemEnd + `|\z))`)
	pemTail = regexp.MustCompile(`((?:[A-Za-z0-9+/=]+(?:\s|\\[nr])+)*[A-Za-z0-9+/=]+(?:\s|\\[nr])*` + pemEnd + `)`)
)

// cookie is a cookie header with all its name=value parts.
var cookie = regexp.MustCompile(`(?i)cookie2?\\*["']?\s*[:=]\s*\\*["']?` +
	`([^\s;="']+=[^\s;"']*(?:;\s*[^\s;="']+=[^\s;"']*)*)`)

// userinfo is the user part of a URL. A password with a raw '/', '?' or '#' in
// it is told from a port by a character that is no digit.
var userinfo = regexp.MustCompile(":\\\\?/\\\\?/(" +
	"[^\\s/?#:@\"'`<>]*:[^\\s/?#\"'`<>]*[^\\s/?#\"'`<>0-9][^\\s\"'`<>]*" +
	"|[^\\s/?#\"'`<>]+)@")

// before is what may stand to the left of a word that begins a secret: no
// letter or digit, unless it belongs to an escape.
const (
	before  = `(?:^|[^A-Za-z0-9]|` + escapes + `)`
	escapes = `\\[nrt]|\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2}|\[[0-9;]*m`
)

// secretName is the end of the name of a secret. "key", "pass" and "sig" also
// end harmless words, so those need more to their left.
const secretName = `(?:passw(?:or)?ds?|passphrase|passcode|(?-i:[pP]wd|_PWD)|secrets?|token|credentials?` +
	`|authorization|bearer|_auth|["'_?&]pass|[?&]sig|[?&_-]signature|(?-i:Signature)|(?-i:[a-z]Key)` +
	`|(?:` + before + `|api|access|account|secret|private|auth|signing|encryption|master|shared)key)`

// pair is the name of a secret with what separates it from its value; flag the
// same as an option of a command line; scheme a bare authorization scheme.
var (
	pair = regexp.MustCompile(`(?i)` + secretName + "\\\\*[\"'`]?[\\])]?" + `\s*(?:[:=]|%3[AD])[>=]?\s*` +
		`(?:[\[({]?(?:bearer|basic|digest|token|negotiate|apikey|bot|aws4-hmac-sha256)(?:\s|%20)+)?`)
	flag   = regexp.MustCompile(`(?i)(?:^|[\s"'])--?[\w-]*` + secretName + `\s+`)
	scheme = regexp.MustCompile(`(?i)(?:bearer|basic)(?:\s|%20)+`)
)

// valueAt returns the bounds of the value at s[at:]: what is between quotes,
// also when those are first in a list, or up to a blank, a quote, '&' or ';'. A
// quote may be escaped any number of times, as in JSON within JSON; one that is
// never closed runs to the end.
func valueAt(s string, at int) (from, to int) {
	first := at
	if strings.IndexByte("[({", s[at]) >= 0 {
		first++
	}
	open := first
	for open < len(s) && s[open] == '\\' {
		open++
	}
	if escapes := open - first; open < len(s) && strings.IndexByte("\"'`", s[open]) >= 0 {
		run := 0 // of backslashes before the byte at i
		for i := open + 1; i < len(s); i++ {
			switch {
			case s[i] == '\\':
				run++
				continue
			case s[i] == s[open] && run%(2*escapes+2) == escapes:
				return open + 1, i - escapes
			}
			run = 0
		}
		return open + 1, len(s)
	}
	if n := strings.IndexAny(s[at:], " \t\r\n\f\v\"'`&;"); n >= 0 {
		return at, at + n
	}
	return at, len(s)
}

// plain lists words that follow the name of a secret in a diagnosis and say
// nothing about its value.
var plain = map[string]bool{
	"already": true, "and": true, "cannot": true, "denied": true, "empty": true,
	"expected": true, "expired": true, "failed": true, "false": true, "flag": true, "for": true,
	"has": true, "in": true, "invalid": true, "is": true, "it": true, "missing": true, "must": true,
	"nil": true, "no": true, "none": true, "not": true, "null": true, "option": true, "or": true,
	"permission": true, "required": true, "the": true, "to": true, "too": true, "true": true,
	"undefined": true, "unexpected": true, "unknown": true, "use": true, "was": true,
}

func notPlain(v string) bool { return !plain[strings.ToLower(strings.TrimRight(v, ".,:!?)]}"))] }

// looksRandom tells a token from a word of prose: it has a digit, or a capital
// after a small letter, or padding, or more length than a word.
func looksRandom(v string) bool {
	v = strings.ReplaceAll(v, redacted, " ")
	small := false
	for i := range len(v) {
		c := v[i]
		if c >= '0' && c <= '9' && len(v) > 4 || small && c >= 'A' && c <= 'Z' {
			return true
		}
		small = c >= 'a' && c <= 'z'
	}
	return len(v) >= 24 || strings.HasSuffix(v, "==")
}

// webToken is a JSON web token, also without its signature.
var webToken = regexp.MustCompile(`(eyJ[A-Za-z0-9_\x{FFFD}-]{8,}\.[A-Za-z0-9_\x{FFFD}-]{4,}(?:\.[A-Za-z0-9_\x{FFFD}-]*)*)`)

// providers lists how keys of known providers begin, and how many of letters,
// digits, '-' and '_' must follow. Where names of other things begin the same
// way, as npm_config_cache does, the count is of letters and digits only.
var providers = []struct {
	prefix string
	min    int
	strict bool
}{
	{"sk-ant-", 6, false}, {"sk-proj-", 6, false}, {"sk-svcacct-", 6, false}, {"sk-admin-", 6, false},
	{"sk-or-", 6, false}, {"sk-lf-", 6, false}, {"sk-", 16, true},
	{"gsk_", 16, true}, {"xai-", 16, true}, {"pplx-", 16, true}, {"nvapi-", 16, true}, {"r8_", 16, true},
	{"hf_", 16, true}, {"AIza", 16, false}, {"ya29.", 8, false}, {"GOCSPX-", 8, false},
	{"ghp_", 6, false}, {"gho_", 6, false}, {"ghu_", 6, false}, {"ghs_", 6, false}, {"ghr_", 6, false},
	{"github_pat_", 6, false}, {"glpat-", 6, false}, {"gldt-", 8, false}, {"glrt-", 8, false},
	{"glptt-", 8, false}, {"glcbt-", 8, false}, {"glsoat-", 8, false}, {"glagent-", 8, false},
	{"xoxb-", 6, false}, {"xoxp-", 6, false}, {"xoxa-", 6, false}, {"xoxe-", 6, false}, {"xoxe.", 6, false},
	{"xoxo-", 6, false}, {"xoxr-", 6, false}, {"xoxs-", 6, false}, {"xapp-", 6, false},
	{"AKIA", 12, true}, {"ASIA", 12, true}, {"ABIA", 12, true}, {"ACCA", 12, true},
	{"npm_", 16, true}, {"pypi-", 16, true}, {"rubygems_", 16, true}, {"dckr_pat_", 6, false},
	{"sk_live_", 6, false}, {"sk_test_", 6, false}, {"rk_live_", 6, false}, {"rk_test_", 6, false},
	{"whsec_", 6, false}, {"SG.", 16, false}, {"key-", 32, true}, {"shpat_", 6, false}, {"shpss_", 6, false},
	{"shpca_", 6, false}, {"shppa_", 6, false}, {"sq0atp-", 6, false}, {"sq0csp-", 6, false},
	{"dop_v1_", 6, false}, {"doo_v1_", 6, false}, {"dor_v1_", 6, false}, {"dapi", 32, true},
	{"hvs.", 16, false}, {"hvb.", 16, false}, {"hvr.", 16, false}, {"tskey-", 8, false},
	{"lin_api_", 8, false}, {"figd_", 8, false}, {"ATATT3", 8, false}, {"PMAK-", 8, false},
	{"NRAK-", 8, false}, {"AGE-SECRET-KEY-", 8, false},
}

// providerStart holds the first bytes of all providers' prefixes.
var providerStart = func() (set [256]bool) {
	for _, p := range providers {
		set[p.prefix[0]] = true
	}
	return set
}()

// providerKeys returns the keys of known providers. A key may go on with parts
// after a '.'.
func providerKeys(s string) []span {
	var found []span
	escaped := strings.ContainsAny(s, "\\%[")
	for i := 0; i < len(s); i++ {
		if !providerStart[s[i]] || i > 0 && isAlnum(s[i-1]) && !escaped {
			continue
		}
		for _, p := range providers {
			if !strings.HasPrefix(s[i:], p.prefix) || !begins(s, i) {
				continue
			}
			rest := s[i+len(p.prefix):]
			head := strings.IndexFunc(rest, func(r rune) bool { return !inKey(r) || p.strict && (r == '-' || r == '_') })
			if head < 0 {
				head = len(rest)
			}
			if head < p.min {
				continue
			}
			n := strings.IndexFunc(rest, func(r rune) bool { return !inKey(r) && r != '.' })
			if n < 0 {
				n = len(rest)
			}
			to := len(s) - len(rest) + len(strings.TrimRight(rest[:n], "."))
			if _, _, run := RunID(s[i:to]).Split(); !run {
				found = append(found, span{i, to})
			}
			i = to - 1
			break
		}
	}
	return found
}

// inKey reports whether r may stand in a key. U+FFFD stands for bytes that are
// not UTF-8.
func inKey(r rune) bool {
	return r < 0x80 && isAlnum(byte(r)) || r == '-' || r == '_' || r == '\uFFFD'
}

// begins reports whether a word may begin at s[i], as before says.
func begins(s string, i int) bool {
	return i == 0 || !isAlnum(s[i-1]) || escape.MatchString(s[max(0, i-16):i])
}

var escape = regexp.MustCompile(`(?:` + escapes + `)$`)

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
