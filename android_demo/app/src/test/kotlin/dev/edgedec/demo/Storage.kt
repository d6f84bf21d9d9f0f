package dev.edgedec.demo

import android.os.storage.StorageManager
import org.robolectric.annotation.Implementation
import org.robolectric.annotation.Implements
import java.util.UUID

/** Says how much may be written, which Robolectric does not know. */
@Implements(StorageManager::class)
class Storage {
    @Implementation
    fun getAllocatableBytes(@Suppress("UNUSED_PARAMETER") storage: UUID): Long = freeBytes

    companion object {
        private const val ROOMY = 1L shl 30

        @Volatile var freeBytes = ROOMY

        /** Robolectric resets its own shadows only. */
        fun reset() {
            freeBytes = ROOMY
        }
    }
}
