package credential

import (
	"fmt"
	"time"
)

// Cache keeps the tokens of the current windows, least recently used out first. It is not safe for concurrent use:
// its owner guards it, or has one per goroutine.
type Cache struct {
	signer  *Signer
	size    int
	entries map[cacheKey]*cacheEntry
	// A ring through all entries: head.next is the most recently used, head.prev the least.
	head cacheEntry
}

type cacheKey struct {
	proxy     ProxyUID
	principal Principal
	lifetime  time.Duration
}

type cacheEntry struct {
	key        cacheKey
	token      Token
	prev, next *cacheEntry
}

// CacheOptions configures a [Cache].
type CacheOptions struct {
	// Signer makes what the cache does not have.
	Signer *Signer
	// Size is the greatest number of tokens kept; at least one. A token takes about half a kilobyte.
	Size int
}

// NewCache returns an empty cache, or an error that wraps [ErrInvalid].
func NewCache(o CacheOptions) (*Cache, error) {
	if o.Signer == nil || o.Size < 1 {
		return nil, fmt.Errorf("%w: a cache needs a signer and a size of at least 1", ErrInvalid)
	}
	return &Cache{signer: o.Signer, size: o.Size, entries: make(map[cacheKey]*cacheEntry)}, nil
}

// Get returns what [Signer.Sign] would, signing only if the cache has no token of the current window.
func (c *Cache) Get(now time.Time, proxy ProxyUID, principal Principal, lifetime time.Duration) (Token, error) {
	key := cacheKey{proxy: proxy, principal: principal, lifetime: lifetime}
	entry, ok := c.entries[key]
	if ok && c.covers(entry, now) {
		c.unlink(entry)
		c.pushFront(entry)
		return entry.token, nil
	}
	token, err := c.signer.Sign(now, proxy, principal, lifetime)
	if err != nil {
		return Token{}, err
	}
	if ok {
		c.unlink(entry)
	} else {
		if len(c.entries) >= c.size {
			oldest := c.head.prev
			c.unlink(oldest)
			delete(c.entries, oldest.key)
		}
		entry = &cacheEntry{key: key}
		c.entries[key] = entry
	}
	entry.token = token
	c.pushFront(entry)
	return token, nil
}

// Len returns the number of tokens kept.
func (c *Cache) Len() int { return len(c.entries) }

// covers reports whether now is in the entry's window. A clock that stepped back must not see a later window's token,
// which would be from the future.
func (c *Cache) covers(e *cacheEntry, now time.Time) bool {
	window := time.Duration(c.signer.window) * time.Second
	return now.Before(e.token.FreshUntil) && !now.Before(e.token.FreshUntil.Add(-window))
}

func (c *Cache) unlink(e *cacheEntry) {
	e.prev.next, e.next.prev = e.next, e.prev
}

func (c *Cache) pushFront(e *cacheEntry) {
	if c.head.next == nil {
		c.head.next, c.head.prev = &c.head, &c.head
	}
	e.prev, e.next = &c.head, c.head.next
	e.prev.next, e.next.prev = e, e
}
