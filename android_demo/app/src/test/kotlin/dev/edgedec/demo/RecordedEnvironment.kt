package dev.edgedec.demo

import android.system.Os
import org.robolectric.annotation.Implementation
import org.robolectric.annotation.Implements
import org.robolectric.annotation.Resetter
import java.util.concurrent.ConcurrentHashMap

/** Remembers which variables were set: a JVM cannot change its own environment, as a phone's process can. */
@Implements(Os::class)
class RecordedEnvironment {
    companion object {
        val set = ConcurrentHashMap<String, String>()

        @JvmStatic
        @Implementation
        fun setenv(name: String, value: String, overwrite: Boolean) {
            if (overwrite) set[name] = value else set.putIfAbsent(name, value)
        }

        @JvmStatic
        @Resetter
        fun reset() = set.clear()
    }
}
