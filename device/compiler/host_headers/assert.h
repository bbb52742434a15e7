// assert is built in. Only NDEBUG must be handled, every time this header is included.
#ifdef NDEBUG
#undef assert
#define assert(condition) (static_cast<void>(0))
#endif
