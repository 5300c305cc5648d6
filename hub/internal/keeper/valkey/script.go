package valkey

import (
	"context"
	"crypto/sha1" //nolint:gosec // the server's name for a script
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

//go:embed lua
var sources embed.FS

// script is a program that the server runs in one step.
type script struct{ name, source, sum string }

func load(name string) script {
	source, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // it is built in
	}
	sum := sha1.Sum(source) //nolint:gosec // the server's name for a script
	return script{name: name, source: string(source), sum: hex.EncodeToString(sum[:])}
}

var (
	fenceScript   = load("fence")
	appendScript  = load("append")
	pushScript    = load("push")
	switchScript  = load("switch")
	reclaimScript = load("reclaim")
	dropScript    = load("drop")
	sinceScript   = load("since")
)

// run runs the script, and hands it over first if the server does not know it. A script answers with a list: a word, and
// what belongs to it.
func (s *session) run(ctx context.Context, script script, keys []string, args ...string) ([]rueidis.RedisMessage, error) {
	b := s.client.B()
	answer, err := s.client.Do(ctx, b.Evalsha().Sha1(script.sum).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToArray()
	if code(err) == "NOSCRIPT" {
		answer, err = s.client.Do(ctx, b.Eval().Script(script.source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToArray()
	}
	if err != nil {
		return nil, fmt.Errorf("run the script %s: %w", script.name, explain(err))
	}
	if len(answer) == 0 {
		return nil, fmt.Errorf("run the script %s: it said nothing", script.name)
	}
	return answer, nil
}

// word is the i-th part of an answer, or empty.
func word(answer []rueidis.RedisMessage, i int) string {
	if i >= len(answer) {
		return ""
	}
	text, err := answer[i].ToString()
	if err != nil {
		if n, err := answer[i].AsInt64(); err == nil {
			return strconv.FormatInt(n, 10)
		}
		return ""
	}
	return text
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func parseNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 53) // what Lua's numbers hold
	if err != nil {
		return 0, fmt.Errorf("%q is no number: %w", text, err)
	}
	return n, nil
}
