package launch_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"example.com/piworkflows/launch"
	"pgregory.net/rapid"
)

const mark = "[redacted]"

// Made-up secrets, joined here so that no scanner takes this file for a leak.
var (
	jwt    = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiJib2IifQ" + ".c2lnbmF0dXJl-_x"
	github = "ghp" + "_16C7e42F292c6912E7710c838347Ae178B4a"
	body   = "MIIEowIBAAKCAQEAx0f4s7ZqTn3rQ9bJ2mYk8vHcL5pWd1uE+/6G"
	pemKey = "-----BEGIN RSA PRIVATE " + "KEY-----\n" + body + "\n" + body + "==\n-----END RSA PRIVATE " + "KEY-----"
)

func TestRedactRemoves(t *testing.T) {
	for _, c := range []struct{ why, in, want string }{
		{"bearer header", "Authorization: Bearer x", "Authorization: Bearer " + mark},
		{"any case, no space after the colon", "AUTHORIZATION:bEaReR x y", "AUTHORIZATION:bEaReR " + mark + " y"},
		{"basic header", "authorization: basic dTpw", "authorization: basic " + mark},
		{"unknown scheme: the value is one word", "Authorization: abc", "Authorization: " + mark},
		{"proxy header inside shell quotes", `-H "Proxy-Authorization: Basic dTpw" -v`, `-H "Proxy-Authorization: Basic ` + mark + `" -v`},
		{"headers as a Go map prints them", "map[Authorization:[Bearer ab] X-Api-Key:[cd]]", "map[Authorization:[Bearer " + mark + " X-Api-Key:" + mark},
		{"headers as a JSON map", `{"Authorization":["Bearer ab"]}`, `{"Authorization":["` + mark + `"]}`},
		{"bare bearer token", "sent Bearer abc123def and failed", "sent Bearer " + mark + " and failed"},
		{"bare bearer with an opaque long word", "bearer abcdefghijklmnopqrstuvwx", "bearer " + mark},
		{"bare basic credentials", "Basic dXNlcjpwYXNz", "Basic " + mark},
		{"a cookie does not hide the name after it", "Cookie: a=(token: abc", "Cookie: " + mark + " " + mark},
		{"a mark that joins two shapes", "key://&@", "key:" + mark},
		{"cookies, all of them", "Cookie: sid=abc; theme=dark; t=1 end", "Cookie: " + mark + " end"},

		{"key=", "key=abc", "key=" + mark},
		{"token= ends at a blank", "token=a!b,c) next", "token=" + mark + " next"},
		{"password with punctuation", "password=p@$$:w0/rd", "password=" + mark},
		{"secret: with a blank", "secret: swordfish now", "secret: " + mark + " now"},
		{"any case and compound", "DB_PASSWORD=a AWS_SECRET_ACCESS_KEY=b", "DB_PASSWORD=" + mark + " AWS_SECRET_ACCESS_KEY=" + mark},
		{"written together", "apikey=a accessToken:b clientSecret => c", "apikey=" + mark + " accessToken:" + mark + " clientSecret => " + mark},
		{"camel case key", "stripeKey=a", "stripeKey=" + mark},
		{"header of a key", "x-api-key: a", "x-api-key: " + mark},
		{"JSON", `{"password": "a b", "user": "bob"}`, `{"password": "` + mark + `", "user": "bob"}`},
		{"JSON with an escaped quote inside", `{"password":"a\"b","n":1}`, `{"password":"` + mark + `","n":1}`},
		{"JSON with an escaped backslash at the end", `{"password":"a\\","n":1}`, `{"password":"` + mark + `","n":1}`},
		{"JSON within JSON", `"{\"token\":\"a\\\"b\",\"n\":1}"`, `"{\"token\":\"` + mark + `\",\"n\":1}"`},
		{"a quote that is never closed", `{"password": "correct horse batt`, `{"password": "` + mark},
		{"single quotes", "{'api_key': 'a b'}", "{'api_key': '" + mark + "'}"},
		{"Go struct", "{User:bob Password:hunter2}", "{User:bob Password:" + mark},
		{"query", "https://h/p?a=1&access_token=x&b=2", "https://h/p?a=1&access_token=" + mark + "&b=2"},
		{"signed URL", "https://h/p?X-Amz-Credential=c%2Fd&X-Amz-Signature=0a1b&x=1", "https://h/p?X-Amz-Credential=" + mark + "&X-Amz-Signature=" + mark + "&x=1"},
		{"shared access signature", "https://h/p?sv=1&sig=a%2Bb", "https://h/p?sv=1&sig=" + mark},
		{"escaped query", "next=%2Fp%3Ftoken%3Dabc", "next=%2Fp%3Ftoken%3D" + mark},
		{"connection string", "Server=db;Password=a;Pwd=b;User=u", "Server=db;Password=" + mark + ";Pwd=" + mark + ";User=u"},
		{"a second pair that begins inside the first value", "token=abc_key = x", "token=" + mark + " = " + mark},
		{"command line", "run --token hunter --db-password 'a b' -v", "run --token " + mark + " --db-password '" + mark + "' -v"},
		{"coloured log", "\x1b[36mtoken=\x1b[0mabc", "\x1b[36mtoken=" + mark},

		{"provider key", "bad " + github + ", sorry", "bad " + mark + ", sorry"},
		{"provider key after an escaped newline", `line\n` + github, `line\n` + mark},
		{"provider key in an escaped colour", `\u001b[1;31m` + github, `\u001b[1;31m` + mark},
		{"provider key with bytes that are not UTF-8", github[:9] + "\xff" + github[9:], mark},
		{"two side by side", github + "," + github, mark + "," + mark},
		{"prefix sk-", "sk-" + "abcdefghijklmnop", mark},
		{"prefix sk-ant-", "sk-ant-" + "api03-Abc_d-e", mark},
		{"prefix sk-proj-", "sk-proj-" + "abc-def_ghi", mark},
		{"prefix gho_", "gho_" + "abcdef", mark},
		{"prefix github_pat_", "github_pat_" + "11ABC_def", mark},
		{"prefix xoxb-", "xoxb-" + "123-456-abc", mark},
		{"prefix AKIA", "AKIA" + "IOSFODNN7EXAMPLE", mark},
		{"prefix ASIA", "ASIA" + "IOSFODNN7EXAMPLE", mark},
		{"prefix AIza", "AIza" + "SyA1234567890abcdefghij_klmnopqr", mark},
		{"prefix glpat-", "glpat-" + "abcDEF123456", mark},
		{"prefix npm_", "npm_" + "abcdefghijklmnopqrstuvwxyz0123456789", mark},
		{"prefix hf_", "hf_" + "abcdefghijklmnopqrstuvwxyz", mark},
		{"prefix pypi-", "pypi-" + "AgEIcHlwaS5vcmcCJDU_x-y", mark},
		{"prefix SG.", "SG." + "abcdefghijklmnopqrstuv.wxyz-_0123", mark},
		{"prefix sk_live_", "sk_live_" + "abcdef012345", mark},
		{"prefix rk_live_", "rk_live_" + "abcdef012345", mark},
		{"web token", "got " + jwt + ".", "got " + mark},
		{"web token without a signature", jwt[:strings.LastIndexByte(jwt, '.')] + " x", mark + " x"},

		{"private key", "a " + pemKey + " b", "a " + mark + " b"},
		{"private key on one line", strings.ReplaceAll(pemKey, "\n", " "), mark},
		{"private key in JSON", `{"k":"` + strings.ReplaceAll(pemKey, "\n", `\n`) + `"}`, `{"k":"` + mark + `"}`},
		{"private key that was cut", "a " + pemKey[:60], "a " + mark},
		{"private key cut in its end mark", pemKey[:len(pemKey)-9], mark},
		{"private key without its front", "stderr: " + pemKey[40:], "stderr: " + mark},
		{"private key as a value", "private_key=" + pemKey + " x", "private_key=" + mark + " x"},
		{"PGP key block", "-----BEGIN PGP PRIVATE " + "KEY BLOCK-----\nab\n-----END PGP PRIVATE " + "KEY BLOCK-----.", mark + "."},

		{"user and password of a URL", "dial postgres://u:p@h:5432/db?x=1", "dial postgres://" + mark + "@h:5432/db?x=1"},
		{"user only, which may be a token", "https://abc@h/p", "https://" + mark + "@h/p"},
		{"password with an at sign", "redis://:p@q@h", "redis://" + mark + "@h"},
		{"password with a raw slash", "amqp://u:p/q@h/v", "amqp://" + mark + "@h/v"},
		{"URL with escaped slashes", `"http:\/\/u:p@h"`, `"http:\/\/` + mark + `@h"`},
	} {
		if got := launch.Redact(c.in); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.why, got, c.want)
		} else if again := launch.Redact(got); again != got {
			t.Errorf("%s: redacted again %q\nwas %q", c.why, again, got)
		}
	}
}

func TestRedactLeaves(t *testing.T) {
	for _, c := range []struct{ why, in string }{
		{"nothing", ""},
		{"names of secrets in prose", "the key is missing; a token bucket limits the password form, the secret stays"},
		{"words that contain them", "keyboard=us monkey=1 turkey: 2 tokens: 1500 max_tokens=4096 token_count=3 tokenizer: x"},
		{"a diagnosis after a name", "token: expired, api_key: missing; password: must not be empty"},
		{"no value", "token=null password: false secret="},
		{"an empty quoted value", `{"password": ""}`},
		{"schemes in prose", "the bearer of bad news needs basic understanding; Bearer authentication failed; the bearer token is old"},
		{"a challenge names no secret", `WWW-Authenticate: Bearer realm="api"`},
		{"an option in prose", "the --token flag, --password is required"},
		{"paths", `/home/bob/.ssh/id_rsa C:\keys\token.txt ./secrets/password_test.go`},
		{"a path in an error", "open /run/secrets/db_password: permission denied; /run/token: no such file"},
		{"working directory", "PWD=/home/bob OLDPWD=/"},
		{"uuid", "550e8400-e29b-41d4-a716-446655440000"},
		{"run ids", "sketch-01ARZ3NDEKTSV4RRFFQ69G5FAV sk-01ARZ3NDEKTSV4RRFFQ69G5FAV pypi-01ARZ3NDEKTSV4RRFFQ69G5FAV."},
		{"digest", "deferred-turn:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"names with a provider's prefix", "sk-learn pypi-publish npm_config_user_agent hf_hub_download task-force risk-free-investment-plan"},
		{"prefix inside a word", "ask-anything-you-want-about-it highs_andlowsofit"},
		{"URL without a user", "https://example.org/@scope/pkg http://localhost:8080/@x mailto:bob@example.com"},
		{"at sign in a query", "https://h/p?to=bob@example.com"},
		{"public key", "-----BEGIN PUBLIC KEY----- MIIB -----END PUBLIC KEY-----"},
		{"dots that make no web token", "eyJ eyJabc.def v1.2.3"},
		{"bytes that are not UTF-8", "a\xffb"},
		{"what is redacted already", "token=" + mark + " " + mark + " https://" + mark + "@h"},
	} {
		if got := launch.Redact(c.in); got != c.in {
			t.Errorf("%s:\n got %q\nfrom %q", c.why, got, c.in)
		}
	}
}

// planted draws a text in one of the known shapes together with the part of it
// that must disappear.
func planted() *rapid.Generator[[2]string] {
	hard := rapid.StringMatching(`[A-Za-z0-9]{20}[a-z][A-Z][0-9]`)
	password := rapid.StringMatching(`[A-Za-z0-9!#$%*+,./:=?@^_~()-]{6,30}`)
	return rapid.Custom(func(t *rapid.T) [2]string {
		h, p := hard.Draw(t, "random"), password.Draw(t, "password")+"#"
		shapes := [][2]string{
			{"Authorization: Bearer " + p, p}, {"authorization: Basic " + p, p}, {"Bearer " + h, h},
			{"password=" + p, p}, {"token: " + p, p}, {`"api_key":"` + p + `"`, p},
			{`\"secret\": \"` + p + `\"`, p}, {"?access_token=" + p + "&x=1", p},
			{"postgres://u:" + h + "@db", h}, {"sk-" + "ant-" + h, h}, {"ghp" + "_" + h, h}, {"xoxb" + "-" + h, h},
			{"AKIA" + strings.ToUpper(h), strings.ToUpper(h)}, {"AIza" + h, h}, {"npm" + "_" + h, h},
			{"eyJ" + h + "." + h + "." + h, h},
			{"-----BEGIN PRIVATE " + "KEY-----\n" + h + "\n" + h + "\n-----END PRIVATE " + "KEY-----", h},
		}
		return shapes[rapid.IntRange(0, len(shapes)-1).Draw(t, "shape")]
	})
}

// noise draws any text, made to hit the rules often.
func noise() *rapid.Generator[string] {
	word := rapid.SampledFrom([]string{
		" ", "\n", "\t", "\"", "'", "\\", ":", "=", "&", ";", "@", "[", "]", "://", "é", "😀", "\xff", "\xe2\x82", "\x00", "\u202e",
		"key", "token", "password", "Bearer ", "basic ", "--", "sk-", "ghp_", "eyJ", "Cookie: a=", mark, "missing", "a", "B", "1", "%3D",
		"-----BEGIN PRIVATE " + "KEY-----", "-----END PRIVATE " + "KEY-----", "\x1b[31m",
	})
	words := rapid.Map(rapid.SliceOfN(word, 0, 24), func(w []string) string { return strings.Join(w, "") })
	return rapid.OneOf(words, rapid.String())
}

func TestRedactPlanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret, edge := planted().Draw(t, "secret"), rapid.SampledFrom([]string{" ", "\n", "(", "\t"})
		s := noise().Draw(t, "front") + edge.Draw(t, "left") + secret[0] + " " + noise().Draw(t, "back")
		for name, got := range map[string]string{
			"Redact": launch.Redact(s), "SafeText": launch.SafeText(s, launch.MaxErrorMessage),
		} {
			if strings.Contains(got, secret[1]) {
				t.Fatalf("%s(%q) = %q still holds %q", name, s, got, secret[1])
			}
		}
	})
}

func TestRedactProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := noise().Draw(t, "text")
		if rapid.Bool().Draw(t, "plant") {
			s += planted().Draw(t, "secret")[0] + noise().Draw(t, "back")
		}
		checkRedact(t, s)
	})
}

func checkRedact(t interface{ Fatalf(string, ...any) }, s string) {
	got := launch.Redact(s)
	if again := launch.Redact(got); again != got {
		t.Fatalf("Redact(%q) = %q, and again %q", s, got, again)
	}
	if len(got) > 3*len(s)+len(mark) {
		t.Fatalf("Redact made %d bytes of %d: %q", len(got), len(s), s)
	}
	if utf8.ValidString(s) && !utf8.ValidString(got) {
		t.Fatalf("Redact(%q) = %q is not valid UTF-8", s, got)
	}
}
