package journaltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// KindOf names the type of a record, as in "ProxySet".
func KindOf(rec lease.Record) string { return reflect.TypeOf(rec).Elem().Name() }

// Random returns n records of the types of [Kinds] in turn, with fields as
// chance gives them: empty and long, negative and zero. No engine would write
// them; a journal must keep them all the same.
func Random(random *rand.Rand, n int) []lease.Record {
	kinds := Kinds()
	records := make([]lease.Record, n)
	for i := range records {
		rec := reflect.New(reflect.TypeOf(kinds[i%len(kinds)]).Elem())
		fill(random, rec.Elem())
		records[i] = rec.Interface().(lease.Record)
	}
	return records
}

// fill gives a value, and all within it, at random. Empty lists and maps are
// nil, as journals do not tell them apart.
func fill(random *rand.Rand, v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		if random.IntN(4) > 0 {
			v.Set(reflect.ValueOf(start.Add(time.Duration(random.Int64N(1<<60) - 1<<59))))
		}
		return
	case netip.Addr:
		v.Set(reflect.ValueOf(addr(random)))
		return
	case lease.Exit:
		v.Set(reflect.ValueOf(lease.ExitOf(addr(random))))
		return
	case lease.Target:
		v.Set(reflect.ValueOf(lease.RestoreTarget(text(random), text(random))))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(random))
	case reflect.Bool:
		v.SetBool(random.IntN(2) == 0)
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8:
		shift := random.IntN(v.Type().Bits())
		v.SetInt(int64(random.Uint64()) >> (64 - v.Type().Bits() + shift)) //nolint:gosec // any bits will do
	case reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		v.SetUint(random.Uint64() >> (64 - v.Type().Bits() + random.IntN(v.Type().Bits())))
	case reflect.Float64, reflect.Float32:
		v.SetFloat([]float64{0, 1.5, -random.ExpFloat64(), math.MaxFloat32, math.SmallestNonzeroFloat32}[random.IntN(5)])
	case reflect.Pointer:
		if random.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(random, v.Elem())
		}
	case reflect.Slice:
		if n := random.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		each(random, v)
	case reflect.Array:
		each(random, v)
	case reflect.Map:
		fillMap(random, v)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(random, v.Field(i))
		}
		forget(v)
	default:
		panic(fmt.Sprintf("journaltest: a record has a %s, which Random cannot make yet", v.Type()))
	}
}

func each(random *rand.Rand, v reflect.Value) {
	for i := range v.Len() {
		fill(random, v.Index(i))
	}
}

func fillMap(random *rand.Rand, v reflect.Value) {
	n := random.IntN(4)
	if n == 0 {
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for range n {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(random, key)
		fill(random, value)
		v.SetMapIndex(key, value)
	}
}

// forget takes away what nothing asks for: a fingerprint without a request.
func forget(v reflect.Value) {
	if id := v.FieldByName("RequestID"); id.IsValid() && id.IsZero() {
		v.FieldByName("Fingerprint").SetZero()
	}
}

func addr(random *rand.Rand) netip.Addr {
	var raw [16]byte
	for i := range raw {
		raw[i] = byte(random.Uint32())
	}
	switch random.IntN(3) {
	case 0:
		return netip.Addr{}
	case 1:
		return netip.AddrFrom4([4]byte(raw[:4]))
	default:
		return netip.AddrFrom16(raw)
	}
}

func text(random *rand.Rand) string {
	b := make([]byte, []int{0, 1, 12, 300}[random.IntN(4)])
	for i := range b {
		b[i] = byte(random.Uint32()) // any byte: no journal may care
	}
	return string(b)
}

// Unknown is a record that no engine writes and no journal can keep.
type Unknown struct{}

// When implements [lease.Record].
func (Unknown) When() time.Time { return start }
