package interop;

/** One feature: throws what is wrong with it. */
interface Check {
    void run() throws Exception;

    static void that(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void same(Object wanted, Object got) {
        that(wanted.equals(got), "wanted " + wanted + ", got " + got);
    }
}
