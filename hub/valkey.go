package hub

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/shoal-dev/shoal/hub/internal/identity"
	"github.com/shoal-dev/shoal/hub/internal/keeper/valkey"
)

// Valkey says where [JournalValkey] is, and what is accepted of it.
type Valkey struct {
	// Addresses is one host:port that leads to the primary, or with Sentinel those of the sentinels, which know it by
	// that name.
	Addresses []string
	Sentinel  string
	// Prefix begins the names of the keys: one for each hub on the server. "shoal" if it is empty.
	Prefix string
	// TLS is used if it is set or CAFile is. CAFile holds the authorities to trust, PEM, in place of the system's;
	// CertFile and KeyFile the hub's own certificate.
	TLS                       bool
	CAFile, CertFile, KeyFile string
	// Username and the text in PasswordFile are the hub's credentials. The file is read at every connection.
	Username, PasswordFile string
	// Patience is how long the server may fail to answer before the hub ends: 15 s if it is zero.
	Patience time.Duration
	// EverySecond accepts a server with appendfsync everysec, and Unchecked one with any settings.
	EverySecond, Unchecked bool
}

func (v *Valkey) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&v.Addresses, "journal-valkey-address", nil, "host:port of --journal=valkey: the primary; or with --journal-valkey-sentinel a sentinel, and the flag may be repeated")
	flags.StringVar(&v.Sentinel, "journal-valkey-sentinel", "", "name by which the sentinels know the primary; without it --journal-valkey-address is the primary")
	flags.StringVar(&v.Prefix, "journal-valkey-prefix", "shoal", "how the names of the keys begin; hubs that share a server need one each")
	flags.BoolVar(&v.TLS, "journal-valkey-tls", false, "connect with TLS; --journal-valkey-ca-file implies it")
	flags.StringVar(&v.CAFile, "journal-valkey-ca-file", "", "authorities to trust, PEM; the system's by default")
	flags.StringVar(&v.CertFile, "journal-valkey-cert-file", "", "the hub's own certificate for the server, PEM")
	flags.StringVar(&v.KeyFile, "journal-valkey-key-file", "", "key of --journal-valkey-cert-file, PEM")
	flags.StringVar(&v.Username, "journal-valkey-username", "", "the hub's user on the server; the default user if empty")
	flags.StringVar(&v.PasswordFile, "journal-valkey-password-file", "", "file with the password; it is read at every connection")
	flags.DurationVar(&v.Patience, "journal-valkey-patience", 15*time.Second, "how long the server may fail to answer before the hub ends and starts again")
	flags.BoolVar(&v.EverySecond, "journal-valkey-everysec", false, "accept appendfsync everysec: a crash of the server and the hub at once loses up to two seconds of leases")
	flags.BoolVar(&v.Unchecked, "journal-valkey-unchecked", false, "accept a server that may lose leases or does not tell its settings")
}

// check refuses what makes no sense, used or not.
func (v *Valkey) check(used bool) error {
	secure := v.TLS || v.CAFile != "" || v.CertFile != ""
	switch {
	case !used && len(v.Addresses) > 0:
		return errors.New("--journal-valkey-address is for --journal=valkey; set both or neither")
	case !used:
		return nil
	case len(v.Addresses) == 0:
		return errors.New("say where the leases are kept with --journal-valkey-address, for example --journal-valkey-address valkey.shoal-system.svc:6379")
	case len(v.Addresses) > 1 && v.Sentinel == "":
		return errors.New("several --journal-valkey-address are for sentinels; name the primary with --journal-valkey-sentinel, or give one address that leads to it")
	case (v.CertFile == "") != (v.KeyFile == ""):
		return errors.New("set --journal-valkey-cert-file and --journal-valkey-key-file together")
	case v.Patience < 0 || v.Patience > 0 && v.Patience < time.Second:
		return fmt.Errorf("--journal-valkey-patience is %s; write 1s or more", v.Patience)
	case strings.ContainsAny(v.Prefix, "{}"):
		return fmt.Errorf("--journal-valkey-prefix is %q; write a name without braces", v.Prefix)
	}
	for _, address := range v.Addresses {
		if strings.HasPrefix(address, "/") && v.Sentinel == "" && !secure {
			continue // a socket
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("--journal-valkey-address is %q; write host:port: %w", address, err)
		}
	}
	return nil
}

// server reads the files. Its errors name the flag, and never what is in a file.
func (v *Valkey) server() (valkey.Server, error) {
	s := valkey.Server{Addresses: v.Addresses, Sentinel: v.Sentinel}
	if v.TLS || v.CAFile != "" || v.CertFile != "" {
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if v.CAFile != "" {
		text, err := os.ReadFile(v.CAFile)
		if err != nil {
			return s, fmt.Errorf("read --journal-valkey-ca-file: %w", err)
		}
		s.TLS.RootCAs = x509.NewCertPool()
		if !s.TLS.RootCAs.AppendCertsFromPEM(text) {
			return s, fmt.Errorf("--journal-valkey-ca-file %s holds no certificate, PEM", v.CAFile)
		}
	}
	if v.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(v.CertFile, v.KeyFile); err != nil {
			return s, fmt.Errorf("read --journal-valkey-cert-file and --journal-valkey-key-file: %w", err)
		}
		s.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(v.CertFile, v.KeyFile) // it may have been renewed
			return &pair, err
		}
	}
	if v.Username != "" || v.PasswordFile != "" {
		s.Credentials = v.credentials
		if _, _, err := v.credentials(); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (v *Valkey) credentials() (username, password string, err error) {
	if v.PasswordFile == "" {
		return v.Username, "", nil
	}
	text, err := os.ReadFile(v.PasswordFile)
	if err != nil {
		return "", "", fmt.Errorf("read --journal-valkey-password-file: %w", err)
	}
	return v.Username, strings.TrimRight(string(text), "\r\n"), nil
}

// openValkey takes the fence of the journal and finds out what it is worth. The hub's Secret names the journal and the
// epoch of its last start: a server that knows only earlier ones has forgotten something.
func (h *hub) openValkey(ctx context.Context, p past) (past, error) {
	log := h.Logger.With("part", "journal")
	server, err := h.Valkey.server()
	if err != nil {
		return p, err
	}
	noted, err := identity.NotedJournal(ctx, h.live, h.Namespace)
	if err != nil {
		return p, err
	}
	journal, err := valkey.Open(ctx, valkey.Options{
		Server: server, Prefix: h.Valkey.Prefix, Owner: h.identity.UID(), Now: p.since, New: h.created && noted == "", Logger: log, CompactAfter: h.JournalCompactAfter,
		Patience: h.Valkey.Patience, EverySecond: h.Valkey.EverySecond, Unchecked: h.Valkey.Unchecked,
	})
	if err != nil {
		return p, err
	}
	name := valkeyName(journal.ID(), journal.Epoch())
	id, epoch := parseValkeyName(noted)
	switch {
	case journal.Fresh(), noted == "":
	case id != journal.ID():
		log.WarnContext(ctx, "the hub has used another journal meanwhile; nothing is granted for one maxTTL", "journal", name, "before", noted)
		err = journal.Interrupted(ctx, p.since)
	case epoch > journal.Before():
		log.WarnContext(ctx, "the lease journal's server has forgotten that it was used; nothing is granted for one maxTTL", "journal", name, "before", noted)
		err = journal.Interrupted(ctx, p.since)
	case journal.Replaced():
		log.WarnContext(ctx, "the lease journal's server was restarted or failed over while no hub was at work; nothing is granted for one maxTTL", "journal", name)
	}
	if err == nil {
		_, err = identity.SwapJournal(ctx, h.live, h.Namespace, name)
	}
	if err != nil {
		return p, errors.Join(fmt.Errorf("take the journal on %s into use: %w", strings.Join(h.Valkey.Addresses, ", "), err), journal.Close())
	}
	p.journal, p.close, p.epoch = journal, journal.Close, journal.Epoch()
	p.since, p.complete = journal.Since()
	log.InfoContext(ctx, "lease journal opened", "server", h.Valkey.Addresses, "journal", name, "since", p.since, "complete", p.complete)
	return p, nil
}

// valkeyName is how the hub's Secret names a start on a journal.
func valkeyName(id string, epoch uint64) string {
	return JournalValkey + "/" + id + "@" + strconv.FormatUint(epoch, 10)
}

// parseValkeyName reads it; id is empty for a journal of another kind.
func parseValkeyName(name string) (id string, epoch uint64) {
	rest, ok := strings.CutPrefix(name, JournalValkey+"/")
	if !ok {
		return "", 0
	}
	id, number, _ := strings.Cut(rest, "@")
	epoch, _ = strconv.ParseUint(number, 10, 64) // 0 is less than any
	return id, epoch
}
